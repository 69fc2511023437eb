"""Runs the report's loop, stock and interned, each in a fresh process, and measures growth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs

from scalarintern.tools._child import ToolError, events, package_path

#: The first release whose stock marshalling leaves nothing to the collector.
FIXED_IN = "4.6.2"
#: The modes in the order in which they run.
MODES = ("stock", "interned", "payload")
#: How much more than the payload the interned run may grow, in MB.
ALLOWED_MB = 2.0
#: Resident memory that one step of the stock loop costs on an affected release, in MB.
STOCK_MB_A_STEP = 0.0946


@attrs.frozen
class Sample:
    """One reading: after how many steps, resident memory in MB, seconds since the start."""

    step: int
    rss_mb: float
    seconds: float


@attrs.frozen
class Run:
    """One mode's run of the loop.

    ``left_by_one_call`` is the number of objects that one ``__c_pointers__()`` call left behind
    for the cyclic collector: 3 on an affected release, 0 on a sound one.
    """

    mode: str
    release: str
    python: str
    left_by_one_call: int
    samples: tuple[Sample, ...]

    @property
    def growth_mb(self) -> float:
        """Resident memory gained between the first and the last step, in MB."""
        return self.samples[-1].rss_mb - self.samples[0].rss_mb

    @property
    def seconds(self) -> float:
        """Time for all steps, in seconds."""
        return self.samples[-1].seconds


@attrs.frozen
class Report:
    """The three runs, on one release, and what they say."""

    steps: int
    stock: Run
    interned: Run
    payload: Run

    @property
    def release(self) -> str:
        """The DSL release that was measured."""
        return self.stock.release

    @property
    def stock_leaks(self) -> bool:
        """Whether one stock call left objects that only the collector frees."""
        return self.stock.left_by_one_call > 0

    @property
    def over_payload_mb(self) -> float:
        """How much more the interned run grew than the script's own payload, in MB."""
        return self.interned.growth_mb - self.payload.growth_mb

    @property
    def healthy(self) -> bool:
        """Whether interning leaves nothing behind and grows no more than the payload."""
        return self.interned.left_by_one_call == 0 and self.over_payload_mb <= ALLOWED_MB


def run_report(
    steps: int,
    *,
    python: Path | None = None,
    progress: Callable[[str, int], None] = lambda mode, step: None,
    force: bool = False,
) -> Report:
    """Run the loop in each mode, one after the other, and return what was measured.

    Args:
        steps: steps of the loop; the report's table starts at 10,000.
        python: interpreter of another environment, from `scalarintern.tools.releases`.
        progress: called with the mode and the steps done, about twenty times a mode.
        force: run even where the stock loop is expected to need more memory than is free.

    Raises:
        ToolError: the DSL is missing, a child failed, or memory would not suffice.
    """
    with package_path() as package:
        runs = [_run(mode, steps, python, package, progress, force) for mode in MODES]
    return Report(steps, *runs)


def _run(
    mode: str,
    steps: int,
    python: Path | None,
    package: Path,
    progress: Callable[[str, int], None],
    force: bool,
) -> Run:
    progress(mode, 0)
    reported = events(
        "report_loop.py",
        (mode, str(steps)),
        python=python,
        interned=mode == "interned",
        package=package,
    )
    samples = []
    with closing(reported):
        start = next(reported)
        if mode == "stock" and start["left_by_one_call"] and not force:
            _check_memory(steps)
        for event in reported:
            samples.append(Sample(event["step"], event["rss_kb"] / 1024, event["seconds"]))
            if event["step"]:
                progress(mode, event["step"])
    return Run(mode, start["release"], start["python"], start["left_by_one_call"], tuple(samples))


def _check_memory(steps: int) -> None:
    needed = steps * STOCK_MB_A_STEP
    free = _available_mb()
    if free is not None and needed > 0.9 * free:
        raise ToolError(
            f"{steps:,} stock steps are expected to need {needed:,.0f} MB and {free:,.0f} MB are "
            f"free: give --steps {int(0.9 * free / STOCK_MB_A_STEP):,} or fewer, or --force"
        )


def _available_mb() -> float | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None
