"""Run the test suite against DSL releases, each in a cached environment of its own.

``python scripts/test_releases.py [RELEASE ...]``; without a release, all that are supported.
Exit code 0 if every run passed, 1 if one failed, 2 if an environment could not be made.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("SCALARINTERN", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scalarintern.tools._child import ToolError  # noqa: E402
from scalarintern.tools.releases import environment_python, installer  # noqa: E402

RELEASES = ("4.2.0", "4.3.5", "4.4.2", "4.5.3", "4.6.1", "4.6.2", "4.7.1", "4.8.1")
TEST_PACKAGES = ["pytest", "pytest-xdist", "pympler", "hypothesis", "psutil", "numpy"]
WORKERS = ("-n", os.environ.get("WORKERS", "2"), "--dist", "loadfile", "--no-loadscope-reorder")


def main(releases: list[str]) -> int:
    """Run the suite on each release and print one line for each at the end."""
    lines: list[str] = []
    worst = 0
    for release in releases or RELEASES:
        try:
            python = environment_python(release, notify=print)
        except ToolError as error:
            lines.append(f"{release}: no environment: {error}")
            worst = 2
            continue
        if not _ready(python):
            lines.append(f"{release}: the test packages could not be installed")
            worst = 2
            continue
        print(f"== nvidia-cutlass-dsl {release}", flush=True)
        done = subprocess.run(
            [
                str(python),
                "-m",
                "pytest",
                "-q",
                "-p",
                "pytest_scalarintern",
                *WORKERS,
                *_selection(),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(done.stdout, end="", flush=True)
        found = re.findall(r"^.*\d+ (?:passed|failed|skipped|error).* in .*$", done.stdout, re.M)
        summary = found[-1].strip("= ") if found else f"exit code {done.returncode}"
        lines.append(f"{release}: {summary}")
        if done.returncode:
            worst = max(worst, 1)
    print("\nRelease matrix, CPython", ".".join(map(str, sys.version_info[:2])))
    print("\n".join(lines))
    return worst


def _selection() -> list[str]:
    return os.environ.get("MATRIX_PYTEST_ARGS", "").split()


def _ready(python: Path) -> bool:
    probe = [str(python), "-c", "import pytest, xdist, pympler, hypothesis, psutil, numpy"]
    if subprocess.run(probe, capture_output=True).returncode == 0:
        return True
    return subprocess.run([*installer(python), *TEST_PACKAGES]).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
