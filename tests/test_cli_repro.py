"""``scalarintern repro`` and the runs behind it."""

from __future__ import annotations

import json

import pytest
from cli_support import command, needs, needs_dsl

from scalarintern.cli import repro
from scalarintern.tools import growth
from scalarintern.tools._child import ToolError

STEPS = 400


def _run(mode, left, grown):
    samples = tuple(
        growth.Sample(step, 100.0 + grown * step / 1000, step / 1e4) for step in range(0, 1001, 50)
    )
    return growth.Run(mode, "4.6.1" if left else "4.8.1", "3.12.1", left, samples)


def _report(*, leaks, over=0.0, interned_left=0):
    stock = _run("stock", 3 if leaks else 0, 94.0 if leaks else 6.0)
    interned = _run("interned", interned_left, 6.0 + over)
    payload = _run("payload", stock.left_by_one_call, 6.0)
    return growth.Report(1000, stock, interned, payload)


@needs_dsl
def test_the_loop_runs_in_three_modes():
    """Each mode reports every twentieth; interned leaves nothing and is within 2 MB of payload."""
    seen = []

    report = growth.run_report(STEPS, progress=lambda mode, step: seen.append((mode, step)))

    marks = list(range(0, STEPS + 1, STEPS // 20))
    assert [sample.step for sample in report.stock.samples] == marks
    assert [step for mode, step in seen if mode == "interned"] == marks
    assert report.interned.left_by_one_call == 0
    assert report.healthy
    if report.stock_leaks:
        assert report.stock.growth_mb > 20
        assert report.interned.growth_mb < 5
    else:
        assert report.stock.left_by_one_call == 0


@needs_dsl
def test_json_for_machines():
    """``--json`` prints the samples of the three runs and the figures worked out from them."""
    done = command("repro", "--steps", str(STEPS), "--json")

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["steps"] == STEPS
    assert said["healthy"] is True
    assert len(said["payload"]["samples"]) == 21
    assert any(growth.FIXED_IN in line for line in said["verdict"])


@needs_dsl
@needs("rich")
@needs("matplotlib")
def test_the_table_and_the_plot(tmp_path):
    """The table goes to standard output, the plot to its file, and both are announced."""
    done = command("repro", "--steps", str(STEPS), "--plot", "growth.png", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Wrote growth.png" in done.stdout
    assert "growth" in done.stdout and "interned" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["growth.png"]
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_the_verdict_on_a_release_that_leaks():
    """It says that the release leaks, by how much, and which release fixed it."""
    said = "\n".join(repro.verdict(_report(leaks=True)))

    assert "4.6.1 leaks: one stock call leaves 3 objects" in said
    assert "4.6.2 is the release that fixed it" in said
    assert "94 MB stock, 6.0 MB interned, 6.0 MB" in said


def test_the_verdict_on_a_release_that_does_not_leak():
    """It says that there is no leak, names the release that fixed it, and gives the time."""
    said = "\n".join(repro.verdict(_report(leaks=False)))

    assert "4.8.1 does not leak" in said
    assert "4.6.2 is the release that fixed it" in said
    assert "s stock" in said and "times faster" in said


@pytest.mark.parametrize("bad", [{"over": 2.5}, {"interned_left": 3}])
def test_growth_over_the_payload_is_not_healthy(bad):
    """More than 2 MB over the payload, or an object left by a call, is exit code 1 and said."""
    report = _report(leaks=True, **bad)

    assert not report.healthy
    assert "this should not be" in repro.verdict(report)[-1]


def test_a_run_that_would_not_fit_in_memory_is_refused(monkeypatch):
    """Before memory runs out: how much is needed, how much is free, what to give."""
    monkeypatch.setattr(growth, "_available_mb", lambda: 1000.0)

    with pytest.raises(ToolError, match="give --steps 9,513 or fewer, or --force"):
        growth._check_memory(100_000)


@pytest.mark.parametrize("release", ["../4.6.1", "4.6.1 --pre", "newest", ""])
def test_what_is_no_release_number_is_refused(release):
    """``--dsl`` takes a release number and nothing that a file name or pip could misread."""
    from scalarintern.tools import releases

    with pytest.raises(ToolError, match="not a release number"):
        releases.environment_python(release)


def test_a_release_that_cannot_be_had(tmp_path):
    """No such release, or no network: a message, exit code 2, and nothing left behind."""
    done = command("repro", "--dsl", "0.0.1", "--json", SCALARINTERN_CACHE=str(tmp_path))

    assert done.returncode == 2
    assert "no environment with nvidia-cutlass-dsl 0.0.1 could be made" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
