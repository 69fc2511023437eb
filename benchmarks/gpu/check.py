"""Every marshalling type, in every way to launch, compared bit by bit with the CPU.

Each launch writes the scalars that its kernels received to one place of a
tensor a type. What is in memory afterwards is compared with bytes worked out
here with numpy, and its digest with that of the other modes.
"""

from __future__ import annotations

import gc
import hashlib
import struct
import threading
import warnings
from typing import TYPE_CHECKING, Any

import cutlass
import numpy as np
from cutlass import cute

from . import device, kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .worker import Sink

INTEGERS = (
    "Boolean",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Uint8",
    "Uint16",
    "Uint32",
    "Uint64",
)
FLOATS = ("Float16", "BFloat16", "TFloat32", "Float32", "Float64")
NAMES = INTEGERS + FLOATS

LAUNCHES = 4096
CAPTURED = 256
STREAMS = 4
THREADS = 8


def width_of(name: str) -> int:
    """Bits of an integer type, which its name tells."""
    return int("".join(filter(str.isdigit, name)))


def integer_values(name: str) -> list[int | bool]:
    """Edges, powers of two, and values drawn at random, all in range."""
    if name == "Boolean":
        return [True, False, False, True, True, False, True]
    bits = width_of(name)
    low = 0 if name.startswith("U") else -(2 ** (bits - 1))
    high = low + 2**bits - 1
    draw = np.random.default_rng(bits)
    values = [0, 1, low, high, low + 1, high - 1, high // 3]
    values += [2**power for power in range(bits) if 2**power <= high]
    values += [low + int(draw.integers(0, 2**63)) % (high - low + 1) for _ in range(67)]
    return values


#: NaNs with something in them. What becomes of that is the release's own affair:
#: they are compared between the modes and not with the reference.
PECULIAR = frozenset({0x7FF8000000000123, 0x7FF4000000000001, 0xFFF4000000000001})


def bits_of(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def from_bits(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def float_values() -> list[float]:
    """Zeros, infinities, NaN, subnormals, what rounds, overflows or underflows, random."""
    draw = np.random.default_rng(7)
    values = [0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 0.125, 64.0, 1.01171875, 2.0**-24, 5.9e-8]
    values += [float("inf"), float("-inf"), float("nan"), 65504.0, 65519.0, 65520.0, 1e6]
    values += [3.4e38, 1e300, -1e300, 1e-40, 5e-324, 2.0**-149, 1e-46, 6.1e-5, 3e-5]
    values += [from_bits(bits) for bits in (0xFFF8000000000000, *sorted(PECULIAR))]
    values += [float(v) for v in draw.standard_normal(71)]
    values += [float(v) for v in draw.standard_normal(31) * 1e-3]
    return values


def reference(name: str, value: float) -> bytes:
    """The little-endian bytes that a kernel must receive for a value."""
    if name == "Boolean":
        return bytes([bool(value)])
    if name in INTEGERS:
        bits = width_of(name)
        return (int(value) % (1 << bits)).to_bytes(bits // 8, "little")
    if name == "Float64":
        return struct.pack("<d", value)
    with np.errstate(all="ignore"):
        if name == "Float16":
            return bytes(np.float64(value).astype("<f2").tobytes())
        single = bytes(np.float64(value).astype("<f4").tobytes())
    return single[2:] if name == "BFloat16" else single


class Echo:
    """The echo kernels, compiled, with a tensor of ``count`` places for each type."""

    def __init__(self, count: int, stream: device.Stream) -> None:
        self.count = count
        self.classes = {name: getattr(cutlass, name) for name in NAMES}
        self.values: dict[str, list[Any]] = {name: integer_values(name) for name in INTEGERS}
        self.values |= {name: float_values() for name in FLOATS}
        self.buffers = {name: device.Buffer(count, name) for name in NAMES}
        self.held = {
            name: [self.classes[name](value) for value in self.values[name]] for name in NAMES
        }
        self.compiled = {
            names: cute.compile(
                function,
                *(self.buffers[name].tensor for name in names),
                *(self.classes[name](1) for name in names),
                cutlass.Int32(0),
                stream.handle,
            )
            for names, function in (
                (INTEGERS, kernels.echo_integers),
                (FLOATS, kernels.echo_floats),
            )
        }

    @staticmethod
    def _pick(values: list[Any], name: str, slot: int) -> Any:
        return values[(slot + 13 * NAMES.index(name)) % len(values)]

    def value(self, name: str, slot: int) -> Any:
        """What goes to a slot: each type runs through its values at its own pace."""
        return self._pick(self.values[name], name, slot)

    def argument(self, name: str, slot: int) -> Any:
        """That value as raw number, fresh, held or interned object, in turn."""
        way = (slot + NAMES.index(name)) % 4
        if way == 2:
            return self._pick(self.held[name], name, slot)
        value = self.value(name, slot)
        if way == 0:
            return value
        cls = self.classes[name]
        intern = getattr(cls, "intern", cls) if way == 3 else cls
        return intern(value)

    def launch(self, slot: int, stream: device.Stream) -> None:
        for names, compiled in self.compiled.items():
            compiled(
                *(self.buffers[name].tensor for name in names),
                *(self.argument(name, slot) for name in names),
                slot,
                stream.handle,
            )

    def poison(self) -> None:
        for buffer in self.buffers.values():
            buffer.poison()
        device.synchronize()

    def compare(self, slots: Iterable[int]) -> dict[str, Any]:
        """How many of the written values differ from the reference, with examples."""
        device.synchronize()
        wrong: list[str] = []
        checked = differ = 0
        digest = hashlib.sha256()
        slots = list(slots)
        for name in NAMES:
            memory = self.buffers[name].read()
            width = len(memory) // self.count
            digest.update(memory)
            for slot in slots:
                got = memory[slot * width : (slot + 1) * width]
                value = self.value(name, slot)
                if type(value) is float and bits_of(value) in PECULIAR:
                    continue
                want = reference(name, value)
                checked += 1
                if got != want:
                    differ += 1
                    what = f"{name}({value!r}) slot {slot}"
                    wrong.append(f"{what}: {got.hex()}, not {want.hex()}")
        return {
            "checked": checked,
            "differ": differ,
            "examples": wrong[:12],
            "digest": digest.hexdigest(),
        }


def forget(echo: Echo, mode: str, stream: device.Stream) -> None:
    """Drop every scalar and clear the registry, then write over what they left behind."""
    echo.held = {name: [] for name in NAMES}
    if mode != "stock":
        import scalarintern

        scalarintern.clear()
    gc.collect()
    for turn in range(20_000):
        cutlass.Int64(-1 - turn).__c_pointers__()
        cutlass.Float32(turn + 0.5).__c_pointers__()
        cutlass.Float64(-turn - 0.25).__c_pointers__()
    gc.collect()
    echo.held = {
        name: [echo.classes[name](value) for value in reversed(echo.values[name])] for name in NAMES
    }
    echo.launch(echo.count - 1, stream)
    device.synchronize()


def _eager(echo: Echo, streams: list[device.Stream]) -> int:
    for slot in range(LAUNCHES):
        echo.launch(slot, streams[0])
    return LAUNCHES


def _several_streams(echo: Echo, streams: list[device.Stream]) -> int:
    for slot in range(LAUNCHES):
        echo.launch(slot, streams[slot % STREAMS])
    return LAUNCHES


def _several_threads(echo: Echo, streams: list[device.Stream]) -> int:
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        try:
            start.wait()
            for slot in range(thread, LAUNCHES, THREADS):
                echo.launch(slot, streams[thread])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return LAUNCHES


def run(sink: Sink, mode: str) -> None:
    """Run every scenario, one result each."""
    warnings.simplefilter("ignore")  # values out of a format's range warn at each launch
    streams = [device.Stream() for _ in range(THREADS)]
    echo = Echo(LAUNCHES, streams[0])
    echo.launch(0, streams[0])  # loads the kernels, which a capture does not allow
    scenarios: dict[str, Callable[[Echo, list[device.Stream]], int]] = {
        "eager": _eager,
        f"{STREAMS} streams": _several_streams,
        f"{THREADS} threads": _several_threads,
    }
    for name, scenario in scenarios.items():
        echo.poison()
        slots = scenario(echo, streams)
        sink.put("check", scenario=name, **echo.compare(range(slots)))

    graph = device.Graph(streams[0])
    with graph.capture():
        for slot in range(CAPTURED):
            echo.launch(slot, streams[0])
    forget(echo, mode, streams[0])
    echo.poison()
    graph.replay()
    sink.put("check", scenario="graph, scalars gone", **echo.compare(range(CAPTURED)))
    echo.poison()
    graph.replay()
    sink.put("check", scenario="graph, replayed again", **echo.compare(range(CAPTURED)))
