"""What the tests share that run commands and programs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import scalarintern

#: The folder that the package was imported from.
ROOT = Path(scalarintern.__file__).parents[1]

needs_dsl = pytest.mark.skipif(
    importlib.util.find_spec("nvidia_cutlass_dsl") is None, reason="nvidia-cutlass-dsl is missing"
)


def needs(module: str) -> pytest.MarkDecorator:
    """Skip a test where an optional package is missing."""
    return pytest.mark.skipif(
        importlib.util.find_spec(module) is None, reason=f"{module} is not installed"
    )


def environment(**changes: str) -> dict[str, str]:
    """Return this environment with the package on the path and none of its switches set."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("SCALARINTERN")
    }
    path = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path), **changes}


def python(*arguments: str, cwd: Path | None = None, stdin: str = "", **changes: str):
    """Run Python with these arguments and return what it said and how it ended."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(**changes),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
    )


def command(*arguments: str, cwd: Path | None = None, stdin: str = "", **changes: str):
    """Run the ``scalarintern`` command."""
    return python("-m", "scalarintern", *arguments, cwd=cwd, stdin=stdin, **changes)


def without(modules: list[str], *arguments: str, cwd: Path | None = None):
    """Run the ``scalarintern`` command as if these packages were not installed."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({modules!r})); "
        f"from scalarintern.cli.main import main; sys.exit(main({list(arguments)!r}))"
    )
    return python("-c", code, cwd=cwd)


def run_without_dsl(
    text: str, *paths: Path, options: tuple[str, ...] = (), **variables: str
) -> str:
    """Run a program that finds no DSL but what is on ``paths``: ``.pth`` files are not read.

    Returns what it printed and, after it, what it wrote to standard error.
    """
    site = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    path = os.pathsep.join([*map(str, paths), str(ROOT.resolve()), *dict.fromkeys(site)])
    done = subprocess.run(
        [sys.executable, "-S", *options, "-c", textwrap.dedent(text)],
        env={**os.environ, "SCALARINTERN": "1", **variables, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
