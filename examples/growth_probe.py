"""Tell three kinds of memory growth apart: a reference cycle, a cache, fragmentation.

Run it to see what each looks like, made on purpose, with nothing but the standard library::

    python examples/growth_probe.py

Or copy :func:`reading` into a program that grows and print it every hundred steps.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROUNDS = 6


class Reading(NamedTuple):
    """Memory of this process at one moment."""

    rss_mb: float  # resident memory
    malloc_mb: float  # of that, what C code has from malloc(); nan without glibc 2.33
    blocks: int  # live blocks of Python's own allocator: objects of up to 512 bytes


_FIGURES = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd",
    "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIGURES)


_mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
if _mallinfo2 is not None:
    _mallinfo2.restype = _Mallinfo2


def reading() -> Reading:
    """Read resident memory, malloc()ed memory and Python's live blocks."""
    rss = int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    in_use = float("nan")
    if _mallinfo2 is not None:
        info = _mallinfo2()
        in_use = float(info.uordblks + info.hblkhd)
    return Reading(rss / 2**20, in_use / 2**20, sys.getallocatedblocks())


def cycle(round_number: int) -> None:
    """Make what ``__c_pointers__`` of releases up to 4.6.1 makes: a cycle in each call."""
    for value in range(30_000):
        ctypes.cast(ctypes.pointer(ctypes.c_int32(value)), ctypes.c_void_p)


_seen: dict[int, list[int]] = {}


def cache(round_number: int) -> None:
    """Fill a cache that has no bound with values that never come again."""
    for value in range(round_number * 100_000, (round_number + 1) * 100_000):
        _seen[value] = [value]


_survivors: list[bytes] = []


def fragmentation(round_number: int) -> None:
    """Free 99 of 100 objects, of another size each round; the hundredth pins its pool."""
    size = 64 + 48 * round_number
    objects = [bytes(size) for _ in range(100_000)]
    _survivors.extend(objects[::100])


def show(cause: Callable[[int], None]) -> None:
    """Run one cause, then print how this process grew and what the collector found."""
    gc.collect()
    gc.disable()
    before = reading()
    for round_number in range(ROUNDS):
        cause(round_number)
    after = reading()
    found = gc.collect()
    gc.enable()
    print(
        f"{cause.__name__:14} RSS {after.rss_mb - before.rss_mb:+6.1f} MB"
        f"   malloc {after.malloc_mb - before.malloc_mb:+6.1f} MB"
        f"   blocks {after.blocks - before.blocks:+9,}"
        f"   gc.collect() {found:7,}"
    )


if __name__ == "__main__":
    for kind in (cycle, cache, fragmentation):
        show(kind)
