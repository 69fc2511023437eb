"""Stock against the short way, on generated signatures and calls, in two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass")

import scalarintern
from scalarintern import launch

SCRIPT = Path(__file__).with_name("launch_differential.py")
#: Functions compared; 150 take half a minute on one release.
USUAL = "300" if os.environ.get("SCALARINTERN_SLOW") else "150"
COUNT = int(os.environ.get("SCALARINTERN_DIFFERENTIAL", USUAL))
#: Functions a process: what one of them crashes is then known.
SHARE = 50


def report(mode: str, seed: int, count: int, folder: Path) -> dict[str, Any]:
    """Run one process and return its report."""
    out = folder / f"{mode}.json"
    command = [sys.executable, str(SCRIPT), "--mode", mode, "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--count", str(count), "--out", str(out)],
        env={**os.environ, "SCALARINTERN": "0"},
        capture_output=True,
        text=True,
    )
    trail = out.with_name(out.name + ".trail")
    assert done.returncode == 0, "\n".join(
        [
            f"the {mode} process ended with {done.returncode}",
            done.stderr[-3000:],
            trail.read_text()[-3000:] if trail.exists() else "",
        ]
    )
    return json.loads(out.read_text())  # type: ignore[no-any-return]


@pytest.mark.skipif(
    scalarintern.install().release not in launch.PROVED,
    reason="not proved on this release",
)
@pytest.mark.parametrize("seed", range(1, 1 + -(-COUNT // SHARE)))
def test_calls_end_as_in_stock(seed: int, tmp_path: Path) -> None:
    """Values stored, results, errors, warnings and order of user code are the same."""
    count = min(SHARE, COUNT - SHARE * (seed - 1))
    stock = report("stock", seed, count, tmp_path)
    fast = report("fast", seed, count, tmp_path)
    different, calls, short = [], 0, 0
    for expected, found in zip(stock["functions"], fast["functions"], strict=True):
        assert ("calls" in expected) == ("calls" in found), expected["source"]
        if "calls" not in expected:
            continue
        for a, b in zip(expected["calls"], found["calls"], strict=True):
            calls += 1
            short += "result" in b and not b["release_way"]
            for key in sorted(set(a) | set(b)):
                if key != "release_way" and a.get(key) != b.get(key):
                    line = f"{key}: stock {a.get(key)!r}, here {b.get(key)!r}"
                    different.append(f"{expected['source']}{b['called']}\n{line}")

    assert not different, f"{len(different)} differences, first:\n" + different[0]
    assert short > calls / 4, f"only {short} of {calls} calls took the short way"
