"""What a registry tells of itself: statistics and audit findings, as records."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import attrs

from .store import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from .buffers import Payload
    from .registry import ScalarTable

__all__ = ["ClassStats", "Finding", "RegistryStats", "footprint"]


@attrs.frozen
class ClassStats:
    """The part of :class:`RegistryStats` that one class has; same units."""

    live: int
    pointers: int
    retained: int
    retained_pointers: int
    bytes: int


@attrs.frozen
class RegistryStats:
    """What a registry holds and did.

    Attributes:
        misses: Calls that made a new canonical scalar or launch pointer.
        hits: Calls that found one; None unless ``configure(count_hits=True)``.
        bypassed: Calls that had nothing to intern: a trace was open, or the
            value was no plain number.
        live: Canonical scalars alive now, whoever holds them.
        pointers: Launch pointers alive now, whoever holds them.
        retained: Scalars held in the retained tier, at most ``retain``.
        retained_pointers: Launch pointers held in it, at most ``retain``.
        retain: The bound of either.
        evicted: Scalars and pointers that left the retained tier for age.
        bytes: Memory of live scalars, pointers, buffers and tables, in bytes,
            estimated from a sample of each class.
        classes: Per class, by qualified name; empty unless asked for.
    """

    misses: int
    hits: int | None
    bypassed: int
    live: int
    pointers: int
    retained: int
    retained_pointers: int
    retain: int
    evicted: int
    bytes: int
    classes: dict[str, ClassStats] = attrs.field(factory=dict)


@attrs.frozen
class Finding:
    """A buffer that does not hold its key's bytes any more.

    Attributes:
        cls: Qualified name of the class.
        value: The payload whose bytes it should hold.
        expected: The bytes it should hold.
        found: The bytes it held.
        repaired: Whether they were put back.
    """

    cls: str
    value: Payload
    expected: bytes
    found: bytes
    repaired: bool = False


def footprint(table: ScalarTable, scalars: list[Any], pointers: list[Any]) -> int:
    """Estimate the memory of a table and what it refers to, in bytes."""
    size = sys.getsizeof

    def average(objects: list[Any], measure: Callable[[Any], int]) -> int:
        sample = objects[:: len(objects) // 16 + 1]
        return sum(map(measure, sample)) * len(objects) // len(sample) if sample else 0

    def of_scalar(scalar: Any) -> int:
        held = vars(scalar) if hasattr(scalar, "__dict__") else {}
        return size(scalar) + size(held) + sum(map(size, held.values()))

    def of_pointer(pointer: Any) -> int:
        held = vars(pointer)
        return size(pointer) + size(held) + sum(map(size, held.values()))

    entries = len(table.scalars.refs) + len(table.pointers.refs)
    entry_size = size(Entry(table)) if entries else 0
    stores = (table.scalars, table.pointers)
    containers = [d for s in stores for d in (s.refs, s.fast, s.zeros, s.odd, *s.older)]
    return (
        average(scalars, of_scalar)
        + average(pointers, of_pointer)
        + entries * entry_size
        + sum(map(size, containers))
    )
