"""Times the registry and launches, stock against interned, in fresh processes."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import attrs

from scalarintern.tools._child import events, package_path

MODES = ("stock", "interned", "tvm_ffi")


@attrs.frozen
class Case:
    """What was timed, and the seconds a call that each round took, by mode.

    A round times all modes in one process, turn about: compare within a round. Rounds of the same
    process follow each other; ``processes`` tells how many.
    """

    key: str
    title: str
    processes: int
    seconds: dict[str, tuple[float, ...]]

    def median(self, mode: str) -> float:
        """Return the median seconds a call."""
        return statistics.median(self.seconds[mode])

    def ratio(self, mode: str = "interned") -> float:
        """Return how many times faster than stock: the median of the ratios of the rounds."""
        pairs = zip(self.seconds["stock"], self.seconds[mode], strict=True)
        return statistics.median(stock / other for stock, other in pairs)


@attrs.frozen
class Speed:
    """All cases, on one release, and what could not be timed here with the reason."""

    release: str
    python: str
    cases: tuple[Case, ...]
    left_out: dict[str, str]


def run_speed(
    *,
    processes: int = 3,
    rounds: int = 7,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Speed:
    """Time everything and return the figures.

    Args:
        processes: fresh processes, one after the other.
        rounds: rounds in each.
        progress: called with the rounds done and the rounds in all, over all cases.

    Raises:
        ToolError: the DSL is missing or a process failed.
    """
    taken: dict[str, dict[str, list[float]]] = {}
    start = {}
    done = 0
    with package_path() as package:
        for _ in range(processes):
            reported = events("speed_cases.py", (str(rounds),), interned=False, package=package)
            for event in reported:
                if event["event"] == "start":
                    start = dict(event)
                    continue
                by_mode = taken.setdefault(event["case"], {})
                for mode, seconds in event["seconds"].items():
                    by_mode.setdefault(mode, []).append(seconds)
                done += 1
                progress(done, processes * rounds * len(start["cases"]))
    cases = tuple(
        Case(
            key,
            start["cases"][key],
            processes,
            {mode: tuple(by_mode[mode]) for mode in MODES if mode in by_mode},
        )
        for key, by_mode in taken.items()
    )
    return Speed(start["release"], start["python"], cases, start["left_out"])
