"""The loop of the RSS growth report, in one of three modes.

    report_loop.py MODE STEPS

MODE is ``stock`` (the release as it is), ``interned`` (with ``import scalarintern``) or
``payload`` (the same loop with the kernel calls left out, so what the script keeps on purpose).
The first line reported tells the release and how many objects one call leaves to the collector;
then comes one line each twentieth of STEPS.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

REPORTS = 20
KERNEL_CALLS = 8

kept_alive: list[object] = []


def resident_kb() -> int:
    """Return this process's resident memory in KiB, read as the report reads it."""
    with Path("/proc/self/status").open() as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def left_by_one_call(cls: Any, value: float) -> int:
    """Return how many objects one marshalling call leaves that only the collector can free."""
    scalar = cls(value)
    scalar.__c_pointers__()
    gc.collect()
    gc.disable()
    scalar.__c_pointers__()
    return gc.collect()


def kernel_call(arguments: list[tuple[Any, list[float]]]) -> None:
    """Marshal the scalars of one launch: four classes, nineteen values."""
    for cls, values in arguments:
        for value in values:
            cls(value).__c_pointers__()


def framework_allocations(step: int) -> None:
    """Keep a few objects of varying size for good, as a training framework does."""
    kept_alive.append({f"k{step}": bytearray(37 + step % 73)})
    kept_alive.append(tuple(range(10 + step % 20)))
    kept_alive.append([None] * (5 + step % 15))
    if step % 7 == 0:
        kept_alive.append(bytearray(200 + step % 300))


def main(mode: str, steps: int) -> None:
    """Run the loop and report through the duplicated standard output."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def report(**fields: object) -> None:
        print(json.dumps(fields), file=out)

    if mode == "interned":
        import scalarintern  # noqa: F401  the one line that the program gains

    from cutlass.base_dsl.typing import Float32, Float64, Int32, Int64

    arguments: list[tuple[Any, list[float]]] = [
        (Int32, [64, 128, 192, 256, 512, 1024, 2048, 4096]),
        (Int64, [2048, 4096, 8192, 16384]),
        (Float32, [0.088388, 0.125, 0.0625, 1.0]),
        (Float64, [1.0, 0.5, 0.001]),
    ]
    report(
        event="start",
        release=importlib.metadata.version("nvidia-cutlass-dsl"),
        python=".".join(map(str, sys.version_info[:3])),
        left_by_one_call=left_by_one_call(Int32, 64),
    )

    gc.disable()
    start_kb = resident_kb()
    report(event="sample", step=0, rss_kb=start_kb, seconds=0.0)
    marks = {steps * part // REPORTS for part in range(1, REPORTS + 1)}
    start = time.perf_counter()
    for step in range(1, steps + 1):
        if mode != "payload":
            for _ in range(KERNEL_CALLS):
                kernel_call(arguments)
        framework_allocations(step)
        if step in marks:
            seconds = time.perf_counter() - start
            report(event="sample", step=step, rss_kb=resident_kb(), seconds=seconds)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    # The garbage that stock leaves takes seconds to free one object at a time.
    sys.stderr.flush()
    os._exit(0)
