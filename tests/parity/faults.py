"""Faults put into the library on purpose, to show that the parity suite sees them."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

from scalarintern import dsl_adapter, registry


def merge_zeros(typing: ModuleType) -> None:
    """Give 0.0 and -0.0 one key."""
    key_of: Any = registry.key_of

    def merging(payload: Any, kind: Any = None) -> Any:
        if type(payload) is float and payload == 0:
            payload = 0.0
        return key_of(payload, kind)

    registry.key_of = merging
    registry.copysign = dsl_adapter.copysign = lambda _magnitude, _sign: 1.0  # type: ignore[attr-defined]


def round_bfloat16(typing: ModuleType) -> None:
    """Round BFloat16 to nearest even where the DSL truncates."""
    table: Any = dsl_adapter.pointer_table(typing.BFloat16)
    if table is None:  # 4.2.0 does not marshal it
        return
    truncated = table.marshal

    def rounded(payload: Any) -> Any:
        pointer = truncated(payload)
        if payload == payload and abs(payload) < 3.3e38:
            [bits] = struct.unpack("<I", struct.pack("<f", payload))
            bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
            pointer = registry.encoded_pointer(struct.pack("<H", bits))
        return pointer

    table.marshal = rounded
    table.ctype = None


def keep_stale_pointers(typing: ModuleType) -> None:
    """Keep the first pointer of a scalar whatever is written to its value later."""
    for cls in (typing.Int32, typing.Float32):
        _keep_first(cls)


def _keep_first(cls: Any) -> None:
    current = cls.__c_pointers__
    first: dict[int, tuple[Any, Any]] = {}

    def stale(self: Any) -> Any:
        if id(self) not in first:
            if len(first) > 100:
                first.clear()
            first[id(self)] = (self, current(self))
        return list(first[id(self)][1])

    cls.__c_pointers__ = stale


FAULTS = {
    "zeros merged": merge_zeros,
    "BFloat16 rounded": round_bfloat16,
    "stale pointer": keep_stale_pointers,
}


def apply(name: str, typing: ModuleType) -> None:
    """Put the fault of that name in."""
    FAULTS[name](typing)
