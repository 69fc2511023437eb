"""Throw-away environments, one for each DSL release, kept in the user's cache folder.

An environment is built under a temporary name and renamed into place when it is complete and its
DSL has been imported once, so that one half made is never used, whoever interrupts it, and two
that are built at a time do not mix.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scalarintern.tools._child import ToolError

_RELEASE = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)?")
_STALE_SECONDS = 24 * 3600


def cache_folder() -> Path:
    """Return the folder of all environments; ``SCALARINTERN_CACHE`` overrides it."""
    chosen = os.environ.get("SCALARINTERN_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "scalarintern" / "environments"


def environment_python(
    release: str, *, notify: Callable[[str], None] = lambda message: None
) -> Path:
    """Return the interpreter of an environment that has this DSL release, building it if needed.

    It holds the DSL and scalarintern's own dependencies, and not scalarintern itself.

    Args:
        release: such as ``4.6.1``.
        notify: called with a sentence before each slow step.

    Raises:
        ToolError: no such release for this Python, no network, or no room.
    """
    if not _RELEASE.fullmatch(release):
        raise ToolError(f"{release!r} is not a release number; one is written like 4.6.1")
    cache = cache_folder()
    home = cache / f"dsl-{release}-{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    python = home / "bin" / "python"
    if _starts(python):
        return python
    notify(f"making an environment with nvidia-cutlass-dsl {release} (kept in {cache})")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _sweep(cache)
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
    except OSError as error:
        raise ToolError(
            f"the cache folder cannot be written: {error}; "
            "set SCALARINTERN_CACHE to a folder that can"
        ) from error
    try:
        _build(building, release, notify)
        _move(building, home)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return python


def _starts(python: Path) -> bool:
    """Tell whether the environment is there and the interpreter it was made from still is."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False


def _sweep(cache: Path) -> None:
    """Remove what killed builds left behind a day ago or more."""
    for left in cache.glob(".building-*"):
        if time.time() - left.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _build(folder: Path, release: str, notify: Callable[[str], None]) -> None:
    python = folder / "bin" / "python"
    packages = [f"nvidia-cutlass-dsl=={release}", "attrs", "wrapt"]
    uv = _working_uv()
    if uv:
        _step([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], release)
    else:
        _step([sys.executable, "-m", "venv", str(folder)], release)
    notify(f"installing nvidia-cutlass-dsl {release}; a few hundred MB the first time")
    _step([*installer(python), *packages], release)
    notify("importing it once")
    _step([str(python), "-c", "import attrs, wrapt, cutlass.base_dsl.typing"], release)


def installer(python: Path) -> list[str]:
    """Return the command that installs the packages named after it for ``python``."""
    uv = _working_uv()
    if uv:
        # Compiled, as pip does by itself: each import takes two seconds less.
        return [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
    return [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def _move(building: Path, home: Path) -> None:
    """Put a complete environment in place; one that another process put there first wins."""
    try:
        building.rename(home)
    except OSError:
        if _starts(home / "bin" / "python"):
            return
        # What is there no longer starts: its base interpreter was removed.
        broken = Path(tempfile.mkdtemp(prefix=".building-", dir=home.parent))
        home.rename(broken / "old")
        building.rename(home)
        shutil.rmtree(broken, ignore_errors=True)


def _working_uv() -> str | None:
    uv = shutil.which("uv")
    if uv and subprocess.run([uv, "--version"], capture_output=True).returncode == 0:
        return uv
    return None


def _step(command: Sequence[str], release: str) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    environment["SCALARINTERN"] = "0"
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode == 0:
        return
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    tail = "\n".join(f"  {line}" for line in said[-8:])
    version = ".".join(map(str, sys.version_info[:2]))
    raise ToolError(
        f"no environment with nvidia-cutlass-dsl {release} could be made for Python {version}. "
        f"Is it a release, has it wheels for this Python, and is the package index reachable?\n"
        f"{tail}"
    )
