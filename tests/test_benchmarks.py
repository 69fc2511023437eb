"""``python -m benchmarks``, the speed table."""

from __future__ import annotations

import json

import pytest
from cli_support import ROOT, needs, needs_dsl, python

pytestmark = pytest.mark.skipif(
    not (ROOT / "benchmarks").is_dir(), reason="the benchmarks are in the checkout alone"
)


@needs_dsl
@needs("pyperf")
@needs("rich")
def test_a_short_run_prints_the_table_and_keeps_everything(tmp_path):
    """Each row stands beside its target, and the file has the machine and all values."""
    done = python(
        "-m", "benchmarks", "--fast", "--only", "registry", "--json", str(tmp_path / "b.json"),
        cwd=ROOT,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "Int32(64), Int32.intern(64)" in done.stdout
    assert "of 8 targets met" in done.stdout
    kept = json.loads((tmp_path / "b.json").read_text())
    assert {"date", "python_version", "nvidia_cutlass_dsl", "platform"} <= set(kept)
    assert "hostname" not in kept
    rows = {row["key"]: row for row in kept["rows"]}
    assert {"hit_int", "intern_float", "miss", "miss_float", "import"} <= set(rows)
    assert all(row["met"] in (True, False) for row in rows.values())


@needs("pyperf")
def test_wrong_usage_is_a_message():
    """An unknown part is refused in a sentence, with exit code 2."""
    done = python("-m", "benchmarks", "--only", "nothing", cwd=ROOT)

    assert done.returncode == 2
    assert "invalid choice: 'nothing'" in done.stderr
    assert "Traceback" not in done.stderr
