"""The values that every numeric class is tried with, each under a name of its own."""

from __future__ import annotations

import decimal
import enum
import fractions
import importlib
import itertools
import math
import random
import struct
from collections.abc import Iterator
from types import ModuleType
from typing import Any

#: Fraction bits, smallest exponent and largest exponent of binary formats.
FORMATS = {
    "e4m3": (3, -6, 8),
    "e5m2": (2, -14, 15),
    "f16": (10, -14, 15),
    "bf16": (7, -126, 127),
    "tf32": (10, -126, 127),
    "f32": (23, -126, 127),
    "f64": (52, -1022, 1023),
}
WIDTHS = (1, 4, 8, 16, 32, 64, 128)


class IntSubclass(int):
    """An int that is no int to an exact type check."""


class FloatSubclass(float):
    """A float that is no float to an exact type check."""


class Colour(enum.IntEnum):
    """Members are ints and have a name."""

    RED = 1
    DEEP = 2**31


class Mode(enum.IntFlag):
    """Members are ints that combine."""

    READ = 1
    WRITE = 2


class HasIndex:
    """Converts by __index__ alone."""

    def __index__(self) -> int:
        return 5


class HasFloat:
    """Converts by __float__ alone."""

    def __float__(self) -> float:
        return 2.5


class Refuses(float):
    """A float whose conversion and comparison raise."""

    def __float__(self) -> float:
        raise RuntimeError("no conversion")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = float.__hash__


def double(bits: int) -> float:
    """Give the double of 64 bits, signaling NaNs included."""
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


def binary16(bits: int) -> float:
    """Give the double of a binary16 pattern, a NaN with its payload and still signaling."""
    if bits & 0x7C00 == 0x7C00 and bits & 0x3FF:
        return double((bits >> 15) << 63 | 0x7FF << 52 | (bits & 0x3FF) << 42)
    value: float = struct.unpack("<e", struct.pack("<H", bits))[0]
    return value


def binary32(bits: int) -> float:
    """Give the double of a binary32 pattern, a NaN with its payload and still signaling."""
    if bits & 0x7F800000 == 0x7F800000 and bits & 0x7FFFFF:
        return double((bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29)
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


def sweep(step: int) -> Iterator[tuple[str, Any]]:
    """Every ``step``-th binary16 pattern, the special ones always among them."""
    special = {0, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0x7C01, 0x7DFF, 0x7E00, 0x7FFF}
    special |= {0x8000 | bits for bits in special}
    for bits in range(0x10000):
        if bits % step == 0 or bits in special:
            yield f"f16:{bits:04x}", binary16(bits)


def floats(count: int) -> Iterator[tuple[str, Any]]:
    """Boundaries, ties, NaNs with payloads, and ``count`` random patterns of each width."""
    for name, (fraction, low, high) in FORMATS.items():
        ulp = 2.0**-fraction
        marks = {
            "max": (2.0 - ulp) * 2.0**high,
            "half over": (2.0 - ulp / 2) * 2.0**high if fraction < 52 else math.inf,
            "least normal": 2.0**low,
            "greatest subnormal": (1.0 - ulp) * 2.0**low,
            "least subnormal": math.ldexp(1.0, low - fraction),
            "half of it": math.ldexp(1.0, max(low - fraction - 1, -1074)),
            "tie to even": 1.0 + ulp / 2,
            "tie to odd": 1.0 + 3 * ulp / 2,
        }
        for mark, value in marks.items():
            around = (math.nextafter(value, -math.inf), value, math.nextafter(value, math.inf))
            for sign, (offset, near) in itertools.product((1, -1), enumerate(around)):
                yield f"{name} {mark} {offset - 1:+d} {sign:+d}", sign * near
    for exponent in range(-1074, 1024, 3):
        yield f"2**{exponent}", math.ldexp(1.0, exponent)
    for exponent in range(-323, 309, 7):
        yield f"1e{exponent}", float(f"1e{exponent}")
        yield f"-1e{exponent}", -float(f"1e{exponent}")
    for sign, quiet, bit in itertools.product((0, 1), (0, 1), range(51)):
        bits = sign << 63 | 0x7FF << 52 | quiet << 51 | 1 << bit
        yield f"nan {sign}{quiet} 2**{bit}", double(bits)
    for sign in (0, 1):
        yield f"nan {sign}1 0", double(sign << 63 | 0xFFF << 51)
        yield f"nan {sign}1 full", double(sign << 63 | 0x7FF << 52 | (1 << 52) - 1)
        yield f"inf {sign}", double(sign << 63 | 0x7FF << 52)
        yield f"zero {sign}", double(sign << 63)
    draw = random.Random(20)
    for n in range(count):
        yield f"random 64 {n}", double(draw.getrandbits(64))
        yield f"random 32 {n}", binary32(draw.getrandbits(32))
        # The low half is what BFloat16 cuts off: below, at and above the half.
        high = draw.getrandbits(16)
        low = (0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)[n % 5]
        yield f"bf16 {high:04x} {low:04x} {n}", binary32(high << 16 | low)
        yield f"random decimal {n}", round(draw.uniform(-1000, 1000), n % 6)


def integers(count: int) -> Iterator[tuple[str, Any]]:
    """All around zero, around each end of each range, and ``count`` random ones of each width."""
    known = set(range(-40, 300))
    for width in WIDTHS:
        for end in (1 << width, 1 << width - 1, (1 << width) * 3 // 2):
            known.update(sign * end + step for sign in (1, -1) for step in (-2, -1, 0, 1, 2))
    draw = random.Random(21)
    for width in (*WIDTHS[2:], 65, 100):
        known.update(draw.getrandbits(width) - (1 << width - 1) for _ in range(count))
    for digits in (18, 19, 20, 40, 300, 308, 309, 400, 4300):
        known.update((10**digits, -(10**digits)))
    for value in sorted(known):
        name = str(value) if abs(value) < 10**40 else f"{'-' * (value < 0)}int{value.bit_length()}"
        yield name, value
        if abs(value) < 2**130:
            yield f"float {name}", float(value)
    yield "10**5000", 10**5000  # longer than int's limit of digits for str()


def others() -> Iterator[tuple[str, Any]]:
    """Bools, numbers of other types, and what is no number."""
    yield from (("True", True), ("False", False), ("None", None), ("...", ...))
    for text in ("", "1", "1.5", "x", "nan"):
        yield f"str {text!r}", text
        yield f"bytes {text!r}", text.encode()
    for number in (0, 1, -1, 5, 2**31, 2**63, 2**70):
        yield f"IntSubclass {number}", IntSubclass(number)
        yield f"Fraction {number}", fractions.Fraction(number)
        yield f"Decimal {number}", decimal.Decimal(number)
    for real in (0.0, -0.0, 1.0, 0.1, 1e300, 1e-300, -2.5, math.inf, math.nan):
        yield f"FloatSubclass {real}", FloatSubclass(real)
        yield f"Decimal {real}", decimal.Decimal(real)
        yield f"complex {real}", complex(real, 0)
    yield from (("IntEnum 1", Colour.RED), ("IntEnum 2**31", Colour.DEEP))
    yield from (("IntFlag", Mode.READ), ("IntFlag both", Mode.READ | Mode.WRITE))
    yield from (("1j", 1j), ("Fraction 1/3", fractions.Fraction(1, 3)))
    yield from (("HasIndex", HasIndex()), ("HasFloat", HasFloat()), ("Refuses", Refuses(1.5)))
    yield from (("int", int), ("list", [1]), ("empty list", []), ("tuple", (1,)), ("dict", {1: 2}))
    yield from (("set", {1}), ("range", range(3)), ("function", len), ("object", object))


def numpy_values() -> Iterator[tuple[str, Any]]:
    """Scalars and 0-d arrays of every plain type, if numpy is there."""
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        return
    names = ["bool_", "float16", "float32", "float64", "longdouble", "complex64", "complex128"]
    names += [f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64)]
    with numpy.errstate(all="ignore"):
        for name in names:
            kind = getattr(numpy, name)
            values = [kind(0), kind(1), kind(100)]
            if name[0] in "fl":
                values += [kind(text) for text in ("-0.0", "0.1", "-2.5", "1e30", "inf", "nan")]
            if "int" in name:
                values += [numpy.iinfo(kind).min, numpy.iinfo(kind).max]
                values = [kind(value) for value in values]
            for n, value in enumerate(values):
                yield f"numpy {name} {n}", value
                yield f"numpy {name} {n} 0-d", numpy.array(value)
            yield f"numpy {name} 1-d", numpy.ones(1, kind)
    yield "numpy str", numpy.str_("1")
    yield "numpy datetime64", numpy.datetime64(1, "s")
    yield "numpy object 0-d", numpy.array(5, object)


def scalars(classes: list[Any]) -> Iterator[tuple[str, Any]]:
    """Instances of every class given, as far as they can be made."""
    for cls in classes:
        for value in (0, 1, -1, 100, 2**31, 0.5, -0.0, 1e6, 1e300, math.inf, math.nan):
            try:
                scalar = cls(value)
            except Exception:
                continue
            yield f"{cls.__name__}({value})", scalar
        yield f"class {cls.__name__}", cls


def written() -> Iterator[tuple[str, Any]]:
    """What is written into ``.value`` past the constructor."""
    yield from others()
    yield from numpy_values()
    ends = {
        sign * (1 << width) + step for width in WIDTHS for sign in (1, -1) for step in (-1, 0, 1)
    }
    for value in sorted(ends | {0, 1, 2, 3, -1, 10**30}):
        yield str(value), value
    for bits in (0x7FF0000000000001, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF):
        yield f"nan {bits:x}", double(bits)
    for real in (0.0, -0.0, 1.0, -1.0, 0.1, 65504.0, 65520.0, 1e-8, 3.5e38, 1e300, 1e-300):
        yield f"float {real}", real
    yield from (("inf", math.inf), ("-inf", -math.inf), ("10**5000", 10**5000))


def classes(typing: ModuleType) -> list[Any]:
    """Every class of the metaclass below Numeric, base before derived."""
    found: list[Any] = []
    pending: list[Any] = [typing.Numeric]
    while pending:
        cls = pending.pop(0)
        if not any(cls is known for known in found):
            found.append(cls)
            pending += type.__subclasses__(cls)
    return found


def subclasses(concrete: list[Any]) -> list[Any]:
    """One user-made subclass of each class, some with more to them."""
    made: list[Any] = []
    for n, cls in enumerate(concrete):
        body: dict[str, Any] = {"__module__": "user"}
        if n % 3 == 1:
            body["__slots__"] = ("extra",)
        if n % 3 == 2:
            body["scale"] = 2
        made.append(type(cls)(f"Sub{cls.__name__}", (cls,), body))
    return made
