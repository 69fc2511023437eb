"""Leak assertions: run a function again and again, and say what grew.

Works for any code; the DSL need not be installed. pympler tells the types, sizes and cycles.

This module imports nothing of scalarintern, but ``import scalarintern.testing`` imports the
package, and that applies the adapter as any import of it does. To test a program that does not
import scalarintern, use the pytest marker or fixture (they load this module alone), or set
``SCALARINTERN=0``.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import mmap
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

try:
    from pympler import refgraph as _refgraph
    from pympler import summary as _summary
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "leak assertions need pympler: pip install 'scalarintern[test]'", name="pympler"
    ) from _error

# Typed in part only.
refgraph: Any = _refgraph
summary: Any = _summary

__all__ = ["Cycle", "Growth", "GrowthError", "TypeGrowth", "assert_no_growth", "measure_growth"]

#: Growth counts only if it shows in each of so many windows, so that a cache that fills once, or
#: an `int` that outgrows the interpreter's shared small ones, is not taken for a leak.
_WINDOWS = 3

#: Largest number of objects whose cycles are worked out; pympler compares all with all.
_GRAPH_LIMIT = 2000

_CTYPES_CAUSE = """\
Known cause: ctypes.cast(ctypes.pointer(x), ...) stores the intermediate pointer in its own
`_objects`, a reference cycle that only the cyclic collector frees."""
_DSL_ADVICE = """\
nvidia-cutlass-dsl up to 4.6.1 makes one in every `__c_pointers__()` call.
What to do: put `import scalarintern` into the program, or upgrade to
nvidia-cutlass-dsl >= 4.6.2."""
_CTYPES_ADVICE = """\
What to do: make the pointer with ctypes.c_void_p(ctypes.addressof(x)) and keep x alive beside it.
If the call is inside nvidia-cutlass-dsl: `import scalarintern`, or upgrade it to >= 4.6.2."""


@attrs.frozen
class TypeGrowth:
    """Objects of one type that each round left behind, and their own size in bytes."""

    type_name: str
    objects_per_round: float
    bytes_per_round: float


@attrs.frozen
class Cycle:
    """A reference cycle that a round left to the collector: how many alike, of which types."""

    types: tuple[str, ...]
    per_round: int


@attrs.frozen
class Growth:
    """What `measure_growth` found.

    ``types`` is empty where no Python object stayed behind. ``blocks_per_round`` counts blocks of
    Python's allocator and ``memory_per_round`` bytes from malloc(); each is the least of three
    windows, and 0 where that is within the noise. ``unreachable_per_round`` counts what only the
    collector frees.
    """

    rounds: int
    collect: bool
    types: tuple[TypeGrowth, ...] = ()
    blocks_per_round: float = 0.0
    memory_per_round: float = 0.0
    unreachable_per_round: int = 0
    cycles: tuple[Cycle, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything grew."""
        return bool(self.types or self.blocks_per_round or self.memory_per_round)

    @property
    def from_ctypes_cast(self) -> bool:
        """Whether a cycle is the one that ``ctypes.cast`` of a pointer makes."""
        return any(
            "dict" in cycle.types and any(name.startswith("LP_") for name in cycle.types)
            for cycle in self.cycles
        )


class GrowthError(AssertionError):
    """A function that was asserted not to grow did; ``growth`` tells how."""

    def __init__(self, name: str, growth: Growth) -> None:
        super().__init__(name, growth)
        self.name = name
        self.growth = growth

    def __str__(self) -> str:
        """Name what grew, by how much a round, and what to do where the cause is known."""
        return "\n".join(_describe(self.name, self.growth))


def assert_no_growth(
    func: Callable[[], object],
    *,
    rounds: int = 100,
    warmup: int = 10,
    collect: bool = False,
    limit: float = 0.0,
    memory_limit: float | None = 16.0,
) -> None:
    """Call `func` repeatedly and fail if it leaves more behind each time.

    It is called `warmup` times, then `rounds` times in up to three windows; it passes with the
    first window in which nothing grew. A cache that takes longer to fill looks like a leak until
    it has: raise `warmup`.

    Args:
        func: takes no arguments; its result is dropped.
        rounds: calls in a window. What grows less often than once in `rounds` calls is missed.
        warmup: calls before the first window.
        collect: False keeps the cyclic collector off, so that a cycle counts as growth, as it is
            in a program that runs with ``gc.disable()``. True collects before each count, so that
            only what stays reachable counts.
        limit: objects of one type that each round may leave behind. Where it lets something pass,
            the block count of Python's allocator is not looked at.
        memory_limit: bytes that each round may leave behind in malloc(), which also sees what is
            no Python object. None: not looked at. Where the C library is not glibc 2.33 or newer,
            resident memory is read from /proc instead, and less than 1 KB a round is missed.

    Raises:
        GrowthError: something grew in each of the windows.
        ValueError: `rounds` is less than 1 or `warmup` less than 0.
    """
    __tracebackhide__ = True
    growth = measure_growth(
        func, rounds=rounds, warmup=warmup, collect=collect, limit=limit, memory_limit=memory_limit
    )
    if growth:
        raise GrowthError(_name(func), growth)


def measure_growth(
    func: Callable[[], object],
    *,
    rounds: int = 100,
    warmup: int = 10,
    collect: bool = False,
    limit: float = 0.0,
    memory_limit: float | None = 16.0,
) -> Growth:
    """Return what `assert_no_growth` would judge; a false value where nothing grew.

    The state of the collector is as before when it returns or raises.
    """
    if rounds < 1 or warmup < 0:
        raise ValueError(f"rounds must be at least 1 and warmup at least 0: {rounds}, {warmup}")
    with _collector_off():
        for _ in range(warmup):
            func()
        read_memory, noise = _memory_reader()
        # The readings take a few blocks and bytes themselves; a leak in each round stands out.
        enough_blocks = max(rounds / 4, 4.0)
        enough_memory = math.inf
        if memory_limit is not None:
            enough_memory = max(memory_limit * rounds, noise * rounds, 1024.0)
        floor, blocks, memory = _least_growth(
            func, rounds, collect, read_memory, enough_blocks, enough_memory
        )
        grown = {key for key, count in floor.items() if count > limit * rounds}
        growth = Growth(rounds, collect)
        if not floor and blocks > enough_blocks:
            growth = attrs.evolve(growth, blocks_per_round=blocks / rounds)
        if memory > enough_memory:
            growth = attrs.evolve(growth, memory_per_round=memory / rounds)
        if grown:
            growth = attrs.evolve(growth, types=_sizes(func, rounds, collect, grown))
        if growth.types and not collect:
            garbage = _one_round_of_garbage(func, rounds)
            growth = attrs.evolve(
                growth, unreachable_per_round=len(garbage), cycles=_cycles(garbage)
            )
            del garbage
        return growth


@contextmanager
def _collector_off() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        else:
            gc.disable()


def _least_growth(
    func: Callable[[], object],
    rounds: int,
    collect: bool,
    read_memory: Callable[[], int],
    enough_blocks: float,
    enough_memory: float,
) -> tuple[dict[int, int], int, int]:
    """Return the least growth over the windows: by type, in allocator blocks and in bytes.

    Types are named by `id`: a metaclass may define ``__eq__`` or ``__hash__``. A type is left out
    once a window goes by in which it did not grow. Ends with the first window that shows nothing.
    """
    blocks = memory = sys.maxsize
    before = _census()
    floor = dict.fromkeys(before, sys.maxsize)
    for window in range(_WINDOWS):
        # Nothing is made between these readings but what func makes; the census comes after.
        if collect:
            gc.collect()
        memory_start, blocks_start = read_memory(), sys.getallocatedblocks()
        for _ in range(rounds):
            func()
        if collect:
            gc.collect()
        blocks = min(blocks, sys.getallocatedblocks() - blocks_start)
        memory = min(memory, read_memory() - memory_start)
        after = _census(before, floor)
        if window == 0:
            floor.update(dict.fromkeys(after, sys.maxsize))
        floor = {
            key: min(least, after[key] - before[key])
            for key, least in floor.items()
            if after[key] > before[key]
        }
        before = after
        if not floor and blocks <= enough_blocks and memory <= enough_memory:
            break
    return floor, blocks, memory


def _census(*books: dict[int, int]) -> Counter[int]:
    """Count the live objects by the `id` of their type, less those that make up `books`."""
    own = itertools.chain(books, *books, *(book.values() for book in books))
    counts: Counter[int] = Counter()
    for batch in _live_objects(own):
        counts.update(map(id, map(type, batch)))
    return counts


def _live_objects(own: Iterable[object] = ()) -> Iterator[list[Any]]:
    """Yield all objects that the collector tracks, then those that only they refer to.

    Those in `own` are left out. pympler's own listing would do, but it collects first, and so
    removes the cycles looked for.
    """
    # First of all: what is made from here on is not in it.
    tracked = gc.get_objects()
    seen = set(map(id, own))
    untracked = itertools.filterfalse(gc.is_tracked, gc.get_referents(*tracked))
    yield [thing for thing in tracked if id(thing) not in seen]
    del tracked
    while True:
        fresh = []
        for thing in untracked:
            if id(thing) not in seen:
                seen.add(id(thing))
                fresh.append(thing)
        if not fresh:
            return
        yield fresh
        untracked = itertools.filterfalse(gc.is_tracked, gc.get_referents(*fresh))


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _memory_reader() -> tuple[Callable[[], int], float]:
    """Return a function that reads the memory in use, and the bytes a round below its noise.

    glibc tells what malloc() has handed out, to the byte. Elsewhere resident memory must do; it
    moves in pages, and freed memory that is used again hides a leak. 0 where nothing tells.
    """
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return _resident_bytes, 1024.0
    mallinfo2.restype = _Mallinfo2

    def handed_out() -> int:
        info = mallinfo2()
        return int(info.uordblks + info.hblkhd)

    return handed_out, 0.0


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def _sizes(
    func: Callable[[], object], rounds: int, collect: bool, grown: set[int]
) -> tuple[TypeGrowth, ...]:
    """Measure one window more, of these types alone, and have pympler name and size them."""

    def summarize(own: list[list[Any]]) -> list[list[Any]]:
        if collect:
            gc.collect()
        batches = _live_objects(itertools.chain([own], own, *own))
        odd: dict[int, list[Any]] = {}

        # Not into a list: one that was there when the objects were listed would hold itself.
        def found() -> Iterator[Any]:
            for thing in itertools.chain.from_iterable(batches):
                kind = type(thing)
                if id(kind) not in grown:
                    continue
                if _hashable(kind):
                    yield thing
                    continue
                row = odd.setdefault(id(kind), [f"{kind.__module__}.{kind.__qualname__}", 0, 0])
                row[1] += 1
                row[2] += object.__sizeof__(thing)

        return [*summary.summarize(found()), *odd.values()]

    before = summarize([])
    for _ in range(rounds):
        func()
    rows = summary.get_diff(before, summarize(before))
    types = [
        TypeGrowth(name, count / rounds, size / rounds) for name, count, size in rows if count > 0
    ]
    return tuple(sorted(types, key=lambda row: (-row.bytes_per_round, row.type_name)))


def _hashable(kind: type) -> bool:
    """Tell whether pympler can handle a type; a release of the DSL has a metaclass that raises."""
    try:
        hash(kind)
    except Exception:
        return False
    return True


def _one_round_of_garbage(func: Callable[[], object], rounds: int) -> list[Any]:
    """Return what the first round that leaves unreachable objects leaves."""
    gc.collect()
    others, flags = gc.garbage[:], gc.get_debug()
    gc.garbage.clear()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(rounds):
            func()
            gc.collect()
            if gc.garbage:
                break
        return gc.garbage[:]
    finally:
        gc.set_debug(flags)
        gc.garbage[:] = others


def _cycles(garbage: list[Any]) -> tuple[Cycle, ...]:
    """Have pympler split the garbage into cycles, and count those alike."""
    known = [thing for thing in garbage[:_GRAPH_LIMIT] if _hashable(type(thing))]
    graph = refgraph.ReferenceGraph(known, reduce=True)
    alike = Counter(tuple(sorted(node.type for node in part.metadata)) for part in graph.split())
    return tuple(Cycle(types, count) for types, count in alike.most_common())


def _name(func: Callable[[], object]) -> str:
    inner = getattr(func, "func", func)
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def _describe(name: str, growth: Growth) -> Iterator[str]:
    collector = "collected before each count" if growth.collect else "collector off"
    yield f"{name} grew in each of {_WINDOWS} windows of {growth.rounds} rounds, {collector}:"
    for row in growth.types:
        yield (
            f"  {row.type_name}: {row.objects_per_round:+.3g} objects a round, "
            f"{row.bytes_per_round:+,.0f} bytes a round"
        )
    if growth.blocks_per_round:
        yield (
            f"  {growth.blocks_per_round:+.3g} blocks of Python's allocator a round, in objects "
            "that no other object refers to: an extension keeps a reference too many"
        )
    if growth.memory_per_round:
        yield f"  {growth.memory_per_round:+,.0f} bytes of memory from malloc() a round"
        if not growth.types and not growth.blocks_per_round:
            yield "  and no Python object more: C code does not free what it allocates"
    if growth.unreachable_per_round:
        yield (
            f"A round leaves {growth.unreachable_per_round} unreachable objects, which only the "
            "cyclic collector frees. Cycles:"
        )
        for cycle in growth.cycles:
            yield f"  {cycle.per_round} x {' <-> '.join(cycle.types)}"
    if growth.from_ctypes_cast:
        yield _CTYPES_CAUSE
        yield _DSL_ADVICE if "cutlass" in sys.modules else _CTYPES_ADVICE
