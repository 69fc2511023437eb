"""Interns a hundred million times over ten million values and watches the memory.

    python -m benchmarks.bounds --interns 100000000 --distinct 10000000

The collector is off. Exit code 0 if RSS rose by 16 MB at most over what it was once
the retained tier was full, and the collector then found nothing of this library.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time

import psutil

import scalarintern

MAX_RISE_MB = 16.0
CHUNK = 1_000_000


def run(interns, distinct, seconds):
    """Intern ``interns`` times over ``distinct`` values, or until time is up."""
    from cutlass.base_dsl.typing import Float32, Int64

    if not scalarintern.install().installed:
        raise SystemExit("the adapter is not applied")
    process = psutil.Process()

    def chunk(start, count):
        # Half of a chunk as interned scalars, half as transient ones marshalled.
        for value in range(start, start + count // 4):
            Int64.intern(value)
        for value in range(start + count // 4, start + count // 2):
            Int64(value).__c_pointers__()
        for value in range(start + count // 2, start + count * 3 // 4):
            Float32.intern(value * 1e-6 + 1.0)
        for value in range(start + count * 3 // 4, start + count):
            Float32(value * 1e-6 + 1.0).__c_pointers__()

    chunk(-100_000, 100_000)
    gc.collect()
    gc.disable()
    before = process.memory_info().rss / 2**20
    peak = before
    done = 0
    start = time.monotonic()
    while done < interns and (not seconds or time.monotonic() - start < seconds):
        count = min(CHUNK, interns - done, distinct)
        chunk(done % distinct, count)
        done += count
        peak = max(peak, process.memory_info().rss / 2**20)
    after = process.memory_info().rss / 2**20
    stats = scalarintern.stats()
    garbage = gc.collect()
    return {
        "release": scalarintern.install().release,
        "python": platform.python_version(),
        "interns": done,
        "distinct": min(distinct, done),
        "seconds": round(time.monotonic() - start, 1),
        "rss_mb": {"before": round(before, 1), "after": round(after, 1), "peak": round(peak, 1)},
        "rise_mb": round(peak - before, 1),
        "garbage": garbage,
        "misses": stats.misses,
        "evicted": stats.evicted,
        "live": stats.live,
        "passed": peak - before <= MAX_RISE_MB and garbage == 0,
    }


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bounds", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--interns", type=int, default=100_000_000)
    parser.add_argument("--distinct", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many; 0 is never")
    options = parser.parse_args(argv)
    report = run(options.interns, options.distinct, options.seconds)
    print(json.dumps(report, indent=1))
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
