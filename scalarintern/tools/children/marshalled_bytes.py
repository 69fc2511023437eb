"""What each numeric class marshals to, stock or interned, for `scalarintern doctor`.

    marshalled_bytes.py MODE

Reports one object: where the DSL is, what one call leaves to the collector, the bytes of every
class for a set of telling values, and, if MODE is ``interned``, what the adapter did.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.metadata
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

INTEGERS = (0, 1, -1, 64, 127, 255, -128, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, 2**64 - 1)
FLOATS = (
    0.0, -0.0, 1.0, -1.5, 0.1, 0.125, 1.1, 1.01171875, 65504.0, 65520.0, 1e-7, 5e-324, 3.4e38,
    1e300, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
SIZES = {"Boolean": 1, "TFloat32": 4, "BFloat16": 2}


def numeric_classes(typing: Any) -> dict[str, Any]:
    """Return the concrete numeric classes of the DSL, by name."""
    found = {}
    for name, cls in vars(typing).items():
        if isinstance(cls, typing.NumericMeta) and cls.__name__ == name:
            with contextlib.suppress(Exception):
                cls(1)
                found[name] = cls
    return found


def marshalled(cls: Any, name: str, value: float) -> str:
    """Return the bytes as hex, or the name of the error, and the names of the warnings."""
    size = SIZES.get(name) or int("".join(filter(str.isdigit, name)) or 8) // 8
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            pointers = cls(value).__c_pointers__()
            said = ",".join(ctypes.string_at(pointer.value, size).hex() for pointer in pointers)
            kinds = {type(pointer).__name__ for pointer in pointers}
            said += f" {'/'.join(sorted(kinds))}"
        except Exception as error:
            said = type(error).__name__
    return " ".join([said, *(warning.category.__name__ for warning in given)])


def left_by_one_call(cls: Any, value: float) -> int:
    """Return how many objects one marshalling call leaves that only the collector can free."""
    scalar = cls(value)
    scalar.__c_pointers__()
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    scalar.__c_pointers__()
    left = gc.collect()
    if enabled:
        gc.enable()
    return left


def adapter_record(applied_by_import: bool) -> dict[str, Any]:
    """Return what the adapter says it did, applying it if the environment keeps it off."""
    import attrs

    import scalarintern

    record = scalarintern.install()
    return {"applied_by_import": applied_by_import, **attrs.asdict(record)}


def main(mode: str) -> None:
    """Look and report."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    seen: dict[str, Any] = {"gc_enabled": gc.isenabled(), "gc_threshold": gc.get_threshold()}
    if mode == "interned":
        import scalarintern
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        import cutlass.base_dsl.typing as typing
    seen["warnings"] = [
        str(warning.message)
        for warning in given
        if warning.category.__module__.startswith("scalarintern")
    ]
    if mode == "interned":
        seen["adapter"] = adapter_record(scalarintern.is_installed())
    seen["release"] = importlib.metadata.version("nvidia-cutlass-dsl")
    seen["location"] = str(Path(typing.__file__).parents[1])
    seen["left_by_one_call"] = {
        "Int32": left_by_one_call(typing.Int32, 64),
        "Float32": left_by_one_call(typing.Float32, 0.125),
    }
    seen["gc_enabled_after_import"] = gc.isenabled()
    seen["bytes"] = {
        name: {
            # Twice: what is made first, and what is found the second time.
            repr(value): [marshalled(cls, name, value) for _ in range(2)]
            for value in (FLOATS if issubclass(type(cls), typing.FloatMeta) else INTEGERS)
        }
        for name, cls in sorted(numeric_classes(typing).items())
    }
    print(json.dumps(seen), file=out)


if __name__ == "__main__":
    main(sys.argv[1])
