"""Starts the programs of `scalarintern.tools.children` and reads what they report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalarintern.errors import ScalarInternError

CHILDREN = Path(__file__).with_name("children")
PACKAGE = Path(__file__).parents[1]


class ToolError(ScalarInternError):
    """A tool could not look: no DSL, no network, a child process that failed.

    The message says what to do about it.
    """


@contextmanager
def package_path() -> Iterator[Path]:
    """Give a folder that holds this package and nothing else, for another Python's path.

    The folder above an installed package is the whole of ``site-packages``; on another
    environment's path it would hide that environment's own DSL.
    """
    with tempfile.TemporaryDirectory(prefix="scalarintern-") as folder:
        (Path(folder) / PACKAGE.name).symlink_to(PACKAGE, target_is_directory=True)
        yield Path(folder)


def child_environment(
    *, interned: bool, isolated: bool, package: Path, keep_switches: bool = False
) -> dict[str, str]:
    """Return the environment variables for a child.

    Args:
        interned: whether the child is to have the adapter; else it is kept off by all means.
        isolated: whether the child runs in an environment of its own, where nothing that this
            process has on ``PYTHONPATH`` may be seen.
        package: a folder that holds the package alone.
        keep_switches: whether the switches of this package in this environment hold in the child.
    """
    environment = dict(os.environ)
    if not keep_switches:
        for name in [name for name in environment if name.startswith("SCALARINTERN")]:
            del environment[name]
    path = [str(package)]
    if isolated:
        environment.pop("PYTHONHOME", None)
    elif environment.get("PYTHONPATH"):
        path.append(environment["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(path)
    if not interned:
        environment["SCALARINTERN"] = "0"
    return environment


def events(
    script: str,
    arguments: Sequence[str] = (),
    *,
    python: Path | None = None,
    interned: bool,
    package: Path,
    keep_switches: bool = False,
) -> Generator[Mapping[str, Any], None, None]:
    """Run a child program and yield the objects it reports, as it reports them.

    Args:
        script: name of a program in `scalarintern.tools.children`.
        arguments: its command line.
        python: interpreter of another environment; None for this one.
        interned: whether the adapter is on in the child.
        package: a folder that holds the package alone, see `package_path`.
        keep_switches: see `child_environment`.

    Raises:
        ToolError: the child could not be started or failed; ends with its last lines.
    """
    command = [str(python or sys.executable), str(CHILDREN / script), *arguments]
    environment = child_environment(
        interned=interned,
        isolated=python is not None,
        package=package,
        keep_switches=keep_switches,
    )
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        except OSError as error:
            raise ToolError(f"could not start {command[0]}: {error}") from error
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
            status = process.wait()
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        if status != 0:
            errors.seek(0)
            raise ToolError(explain_failure(script, status, errors.read()))


def explain_failure(script: str, status: int, errors: str) -> str:
    """Turn how a child ended into a sentence that says what to do."""
    if "No module named 'cutlass'" in errors:
        return (
            "nvidia-cutlass-dsl is not installed in this environment: "
            "pip install 'scalarintern[dsl]'"
        )
    if status == -9:
        return f"{script} was killed, most likely for want of memory: try fewer steps"
    tail = "\n".join(errors.strip().splitlines()[-6:]) or "it said nothing"
    return f"{script} ended with status {status}; its last lines:\n{tail}"
