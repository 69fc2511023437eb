"""A training loop in miniature, on any machine: a compiled host function, and no GPU.

It launches with numbers that change every step and numbers that never do, with the
cyclic collector off, as training loops run. Compare::

    python examples/training_loop.py
    SCALARINTERN=0 python examples/training_loop.py

On nvidia-cutlass-dsl 4.2.0 to 4.6.1 the second grows. Compiling needs no GPU on
4.2.0, 4.5.3, 4.6.x, 4.7.1 and 4.8.1; on 4.3.5 and 4.4.2 it needs libcuda.so.1.

No ``from __future__ import annotations`` here: the DSL reads the annotations.
"""

import argparse
import gc
import math
import mmap
import time
from pathlib import Path

import cutlass
from cutlass import cute

import scalarintern  # the fix: nothing below knows of it


@cute.jit
def train_step(
    step: cutlass.Int64,
    learning_rate: cutlass.Float32,
    momentum: cutlass.Float32,
    rows: cutlass.Int32,
    columns: cutlass.Int32,
):
    """Stands for a kernel launch: takes its arguments and does nothing."""


def rss_mb():
    """Return this process's resident memory in MB."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE / 2**20


def learning_rate_at(step, steps):
    """Return a cosine schedule's value: another number in every step."""
    return 1e-3 * 0.5 * (1.0 + math.cos(math.pi * step / steps))


def main():
    """Compile once, launch in every step, print memory ten times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    steps = parser.parse_args().steps

    launch = cute.compile(train_step, 0, 1e-3, 0.9, 4096, 1024)
    launch(0, 1e-3, 0.9, 4096, 1024)
    gc.collect()
    gc.disable()
    start, began = rss_mb(), time.perf_counter()
    for step in range(1, steps + 1):
        launch(step, learning_rate_at(step, steps), 0.9, 4096, 1024)
        if step % max(1, steps // 10) == 0:
            print(f"step {step:>8,}   RSS {rss_mb():6.0f} MB   growth {rss_mb() - start:+7.1f} MB")
    each = (time.perf_counter() - began) / steps

    print(f"{1e6 * each:.1f} us a step; the collector finds {gc.collect():,} unreachable objects")
    if scalarintern.is_installed():
        stats = scalarintern.stats()
        print(f"interned: {stats.misses:,} misses, {stats.retained_pointers:,} pointers retained")
    else:
        print("not interned")


if __name__ == "__main__":
    main()
