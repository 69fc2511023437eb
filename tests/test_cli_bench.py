"""``scalarintern bench``."""

from __future__ import annotations

import json

import pytest
from cli_support import command, needs, needs_dsl

from scalarintern.tools import speed


def test_the_ratio_is_that_of_the_rounds():
    """The ratio pairs what was timed in the same round."""
    case = speed.Case("k", "t", 1, {"stock": (1.0, 10.0, 4.0), "interned": (0.5, 1.0, 2.0)})

    assert case.ratio() == 2.0
    assert case.median("stock") == 4.0


@needs_dsl
@needs("pyperf")
@needs("rich")
@needs("matplotlib")
def test_table_suite_and_chart(tmp_path):
    """One short run prints the table and keeps a pyperf suite and a chart."""
    import pyperf

    done = command(
        "bench",
        "--processes",
        "1",
        "--rounds",
        "2",
        "--output",
        "speed.json",
        "--plot",
        "speed.svg",
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert "Int32 x.__c_pointers__()" in done.stdout
    assert "Wrote speed.json" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["speed.json", "speed.svg"]
    suite = pyperf.BenchmarkSuite.load(str(tmp_path / "speed.json"))
    assert {"hit_int-stock", "hit_int-interned", "miss-stock"} <= set(suite.get_benchmark_names())
    assert "<svg" in (tmp_path / "speed.svg").read_text()


@needs_dsl
@needs("pyperf")
def test_json(tmp_path):
    """``--json`` has every value, the medians and the ratios."""
    done = command("bench", "--processes", "1", "--rounds", "2", "--json", cwd=tmp_path)

    said = json.loads(done.stdout)
    # These releases need the CUDA driver to compile a host function.
    if not said["release"].startswith(("4.3.", "4.4.")):
        assert "launch" not in said["left_out"]
        assert {"launch_raw", "launch_objects"} <= {case["key"] for case in said["cases"]}
    hit = next(case for case in said["cases"] if case["key"] == "hit_int")
    assert len(hit["seconds"]["stock"]) == 2
    assert hit["times_faster_than_stock"]["interned"] == pytest.approx(
        sum(a / b for a, b in zip(hit["seconds"]["stock"], hit["seconds"]["interned"])) / 2
    )
