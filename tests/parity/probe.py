"""Child of the parity suite: prints what scalars do here, one JSON line for each case.

``python -m parity.probe [--size quick|usual|full] [--only CLASS …] [--fault NAME]``. Whether
scalars are interned is for ``SCALARINTERN`` to say. Interned, each case is done by the constructor
and by ``intern`` in turns, twice each; the line is stock's where all four do what stock does.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import re
import struct
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import battery

#: By size of the run: step of the binary16 sweep for 16-bit floats, for other classes that marshal
#: and for the rest; number of random values; step through the general battery for classes that
#: marshal, for other concrete ones, for abstract ones and for derived ones.
SIZES = {
    "quick": (512, 2048, 8192, 4, (4, 40, 40, 80)),
    "usual": (1, 16, 256, 30, (1, 7, 3, 29)),
    "full": (1, 1, 1, 600, (1, 1, 1, 5)),
}
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_BUFFERS = (ctypes._SimpleCData, ctypes.Array)
_log: list[Any] = []
_lines: list[str] = []


def plain(text: str) -> str:
    """Blank out the addresses of objects; put a checksum in the place of most of a long text."""
    if "0x" in text:
        text = _ADDRESS.sub("0x…", text)
    if len(text) > 300:
        text = f"{text[:160]}… {zlib.crc32(text.encode()):08x}"
    return text


def name_of(thing: Any) -> str:
    """Name the type of a thing."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def text_of(spell: Callable[[Any], str], thing: Any) -> Any:
    """Give what ``spell`` says of a thing, or its error."""
    try:
        return plain(spell(thing))
    except Exception as error:
        return error_of(error)


def bits_of(value: Any) -> list[str]:
    """Spell a value out: its type and its bits."""
    if type(value) is float:
        return ["float", struct.pack("<d", value).hex()]
    if type(value) is int:
        return ["int", hex(value)]
    return [name_of(value), text_of(repr, value)]


def error_of(error: BaseException) -> list[Any]:
    """Give type, text and cause of an exception."""
    try:
        text = plain(str(error))
    except Exception as nested:
        text = f"no text: {type(nested).__name__}"
    return [name_of(error), text, type(error.__cause__).__name__]


def taken_warnings() -> list[Any]:
    """Give and forget the warnings since the last call."""
    if not _log:
        return []
    taken = [
        [w.category.__name__, plain(str(w.message)), Path(w.filename).name, w.lineno] for w in _log
    ]
    _log.clear()
    return taken


def owned_size(pointer: Any, cls: Any) -> int:
    """Give the number of bytes that a launch pointer addresses and keeps alive by itself.

    They are a buffer's that it holds, all of it, or its own, as many as the class is wide whose
    method made it. A width that is not what stock has as a buffer shows as a difference of size.

    Raises:
        AssertionError: Nothing that the pointer keeps alive is at its address.
    """
    keepers = (*(pointer._objects or {}).values(), *vars(pointer).values())
    sizes = {
        ctypes.sizeof(held)
        for held in keepers
        if isinstance(held, _BUFFERS) and ctypes.addressof(held) == pointer.value
    }
    if not sizes:
        # A derived class has the metaclass's default for a width.
        maker = next(base for base in cls.__mro__ if "__c_pointers__" in vars(base))
        size: int = max(1, -(-maker.width // 8))
        # Behind the address that the pointer itself is, and before the end of the object.
        least = ctypes.addressof(pointer) + ctypes.sizeof(pointer)
        end = id(pointer) + type(pointer).__basicsize__
        assert id(pointer) < least <= pointer.value <= end - size, "nothing keeps the bytes alive"
        sizes = {size}
    [size] = sizes
    return size


def pointers_of(scalar: Any) -> dict[str, Any]:
    """Describe what ``__c_pointers__`` gives: count, types, sizes, bytes; or its error."""
    try:
        pointers = scalar.__c_pointers__()
    except Exception as error:
        return {"pointers": {"error": error_of(error)}, "pointer warnings": taken_warnings()}
    described = []
    for pointer in pointers:
        size = owned_size(pointer, type(scalar))
        data = ctypes.string_at(pointer.value, size)
        described.append([name_of(pointer), size, data.hex()])
    return {
        "pointers": {"container": name_of(pointers), "each": described},
        "pointer warnings": taken_warnings(),
    }


def outcome(make: Callable[[Any], Any], cls: Any, value: Any) -> dict[str, Any]:
    """Make one scalar and describe it and all it does, or the error."""
    try:
        scalar = make(value)
    except Exception as error:
        return {"error": error_of(error), "warnings": taken_warnings()}
    record: dict[str, Any] = {
        "warnings": taken_warnings(),
        "class": "as asked" if type(scalar) is cls else name_of(scalar),
        "value": bits_of(scalar.value),
        "vars": {k: bits_of(v) for k, v in vars(scalar).items() if k != "value"},
        "repr": text_of(repr, scalar),
        "str": text_of(str, scalar),
    }
    held = scalar.value
    # The hash of anything else, and of a NaN, may be its address.
    if type(held) in (bool, int, float) and held == held:
        record["hash"] = hash(scalar) ^ hash(type(cls))
    record.update(pointers_of(scalar))
    return record


def emit(section: str, cls: Any, label: str, outcomes: dict[str, list[dict[str, Any]]]) -> None:
    """Print one case; alike outcomes are given once."""
    flat = [one for listed in outcomes.values() for one in listed]
    said: Any = outcomes
    if all(one == flat[0] for one in flat):
        said = flat[0]
    _lines.append(json.dumps([section, cls.__name__, label, said], ensure_ascii=False))
    if len(_lines) > 2000:
        flush()


def flush() -> None:
    """Write out what there is."""
    sys.stdout.write("".join(f"{line}\n" for line in _lines))
    sys.stdout.flush()
    _lines.clear()


def alternate(cls: Any, value: Any, intern_first: bool) -> dict[str, list[dict[str, Any]]]:
    """Do a case twice with the constructor, and twice with intern if there is one."""
    intern = getattr(cls, "intern", None)
    ways = [("made", cls)]
    if intern is not None and not cls._is_abstract:
        ways.append(("interned", intern))
        if intern_first:
            ways.reverse()
    outcomes: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in ways}
    for _ in range(2):
        for name, way in ways:
            outcomes[name].append(outcome(way, cls, value))
    return outcomes


def values_for(
    cls: Any, kind: int, general: list[tuple[str, Any]], size: str
) -> Iterator[tuple[str, Any]]:
    """The battery of one class, which is of one of four kinds, see SIZES."""
    sixteen, others, rest, _, steps = SIZES[size]
    step = rest
    if kind == 0 and "Float" in cls.__name__:
        step = sixteen if cls.__name__.endswith("Float16") else others
    yield from battery.sweep(step)
    yield from general[:: steps[kind]]


def marshals(cls: Any) -> bool:
    """Whether the scalars of a class have launch pointers."""
    try:
        return bool(cls(1).__c_pointers__())
    except Exception:
        return False


def write_values(cls: Any, step: int) -> None:
    """Write values into scalars and marshal them, right after a pointer of the first value."""
    try:
        first = cls(1).value
    except Exception:
        return
    ways = [("made", cls)] + ([("interned", cls.intern)] if hasattr(cls, "intern") else [])
    for label, value in list(battery.written())[::step]:
        outcomes: dict[str, list[dict[str, Any]]] = {}
        for name, way in ways * 2:
            scalar = way(1)
            before = pointers_of(scalar)
            scalar.value = value
            done = {"before": before, "first": pointers_of(scalar), "again": pointers_of(scalar)}
            scalar.value = first
            done["back"] = pointers_of(scalar)
            del scalar.value
            done["deleted"] = pointers_of(scalar)
            done["next"] = outcome(way, cls, 1)
            outcomes.setdefault(name, []).append(done)
        emit("written", cls, label, outcomes)


def filtered_warnings(cls: Any) -> None:
    """Count warnings under other filters: once for each place, none, or as errors."""
    for label, value in (("2**40", 2**40), ("1e300", 1e300), ("300.0", 300.0), ("1e-300", 1e-300)):
        for action in ("default", "once", "ignore", "error"):
            ways = [("made", cls)] + ([("interned", cls.intern)] if hasattr(cls, "intern") else [])
            outcomes: dict[str, list[dict[str, Any]]] = {}
            for name, way in ways:
                for _ in range(2):
                    globals().pop("__warningregistry__", None)
                    with warnings.catch_warnings():
                        warnings.simplefilter(action)  # type: ignore[arg-type]
                        rows = [outcome(way, cls, value) for _ in range(3)]
                        rows.append(outcome(way, cls, value))
                    outcomes.setdefault(name, []).append({"rows": rows})
            emit(f"filter {action}", cls, label, outcomes)


def main() -> None:
    """Print all cases of this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="usual")
    parser.add_argument("--fault")
    parser.add_argument("--only", nargs="*", help="names of the classes to try; all by default")
    options = parser.parse_args()
    import scalarintern

    typing = importlib.import_module("cutlass.base_dsl.typing")
    installed = scalarintern.is_installed()
    if options.fault:
        from . import faults

        faults.apply(options.fault, typing)
    everything = battery.classes(typing)
    concrete = [cls for cls in everything if not cls._is_abstract]
    if options.only:
        everything = concrete = [cls for cls in concrete if cls.__name__ in options.only]
    derived = battery.subclasses(concrete)
    warnings.simplefilter("ignore")
    count = SIZES[options.size][3]
    general = [
        *battery.floats(count),
        *battery.integers(count),
        *battery.others(),
        *battery.numpy_values(),
        *battery.scalars(concrete + derived),
    ]
    labels = [label for label, _ in general]
    assert len(labels) == len(set(labels)), "a name is used twice"
    emit("state", int, "", {"": [{"installed": installed}]})
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        global _log
        _log = log  # type: ignore[assignment]
        for cls in everything + derived:
            kind = 2 if cls._is_abstract else 3 if cls.__module__ == "user" else 1
            kind = 0 if kind == 1 and marshals(cls) else kind
            _log.clear()
            for n, (label, value) in enumerate(values_for(cls, kind, general, options.size)):
                emit("value", cls, label, alternate(cls, value, n % 2 == 1))
            if kind != 2:
                write_values(cls, 1 if kind == 0 else 5)
            if kind == 0:
                filtered_warnings(cls)
    if installed:
        findings = scalarintern.audit()
        if findings and not options.fault:
            emit("audit", int, "", {"": [{"findings": [repr(one) for one in findings[:20]]}]})
    flush()


if __name__ == "__main__":
    main()
