"""What a launch costs on the host, and how much of its time the GPU works meanwhile.

Variants are timed in turns inside one process, so that their ratios do not hang
on the machine's mood: each round times a batch of every variant, and a variant's
figure is the median of its rounds. A batch is timed from its first call to the
return of its last, then waited for.
"""

from __future__ import annotations

import gc
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import cutlass
import numpy as np
from cutlass import cute

from . import device, kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from .worker import Sink

    Batch = Callable[[int], None]

COUNT = 4096
BATCH = 200
BUSY_TARGET_US = 5.0
BUSY_LAUNCHES = 2000
CHANGING = 64


def repeat(call: Any, *args: Any) -> Batch:
    """A batch of the same call with the same arguments."""

    def batch(times: int) -> None:
        for _ in range(times):
            call(*args)

    return batch


def in_turns(variants: dict[str, Batch], rounds: int, batch: int = BATCH) -> dict[str, Any]:
    """Median and lowest microseconds per call of each variant."""
    clock = time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in variants}
    for run in variants.values():
        run(20)
    device.synchronize()
    names = list(variants)
    # The collector stays out of the batches; what was there before costs it nothing.
    gc.collect()
    gc.freeze()
    gc.disable()
    for turn in range(rounds):
        gc.collect()
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            run = variants[name]
            start = clock()
            run(batch)
            stop = clock()
            device.synchronize()
            times[name].append((stop - start) / batch * 1e6)
    gc.enable()
    gc.unfreeze()
    return {
        name: {"median": round(median(taken), 3), "min": round(min(taken), 3)}
        for name, taken in times.items()
    }


def compile_ffi(sink: Sink, function: Any, *args: Any) -> Any:
    """The function compiled for TVM-FFI; None, and a line in the results, if it can't be."""
    try:
        return cute.compile(function, *args, options="--enable-tvm-ffi")
    except Exception as error:
        name = getattr(function, "__name__", str(function))
        sink.put("ffi", function=name, error=f"{type(error).__name__}: {error}"[:500])
        return None


def works(sink: Sink, name: str, call: Any, *args: Any) -> bool:
    """Whether a variant runs at all; a line in the results if it does not."""
    try:
        call(*args)
        device.synchronize()
    except Exception as error:
        sink.put("variant", name=name, error=f"{type(error).__name__}: {error}"[:500])
        return False
    return True


def launch(sink: Sink, mode: str, rounds: int) -> None:
    """The case of two tensors, three scalars and a stream, checked, then timed."""
    f32, i32 = cutlass.Float32, cutlass.Int32
    stream = device.Stream()
    values = np.random.default_rng(5).standard_normal(COUNT).astype("f4")
    x = device.Buffer(COUNT).fill(values)
    y = device.Buffer(COUNT)
    tensors = (x.tensor, y.tensor)
    alpha, beta = 1.7, -0.3
    objects = (f32(alpha), f32(beta), i32(COUNT))
    compiled = cute.compile(kernels.axpb, *tensors, *objects, stream.handle)
    changing = [(alpha + turn / 7, beta - turn / 3, COUNT - turn) for turn in range(CHANGING)]

    def change(times: int) -> None:
        for turn in range(times):
            a, b, count = changing[turn % CHANGING]
            compiled(*tensors, a, b, count, stream.handle)

    def rebuilt(call: Any, ends: tuple[Any, Any]) -> Batch:
        def batch(times: int) -> None:
            for _ in range(times):
                call(*ends, f32(alpha), f32(beta), i32(COUNT), stream.handle)

        return batch

    def check(name: str, call: Any, *args: Any) -> bool:
        y.poison()
        device.synchronize()
        if not works(sink, name, call, *args):
            return False
        got = np.frombuffer(y.read(), dtype="f4").astype("f8")
        want = np.float64(alpha) * values.astype("f8") + np.float64(beta)
        error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
        sink.put("numbers", variant=name, relative_error=error)
        return True

    raw = (*tensors, alpha, beta, COUNT, stream.handle)
    held = (*tensors, *objects, stream.handle)
    variants: dict[str, Batch] = {}
    if check("raw", compiled, *raw):
        variants["raw"] = repeat(compiled, *raw)
        variants["raw, changing"] = change
    if check("objects reused", compiled, *held):
        variants["objects reused"] = repeat(compiled, *held)
        variants["objects rebuilt"] = rebuilt(compiled, tensors)
    c_function, packed, keep = device.bare_call(compiled, held)
    if check("bare C call", c_function, packed):
        variants["bare C call"] = repeat(c_function, packed)

    a, b, c, out = (device.Buffer(COUNT) for _ in range(4))

    def pointers() -> tuple[Any, ...]:
        made = [buffer.pointer(f32) for buffer in (a, b, c, out)]
        return (*made, alpha, beta, COUNT, stream.anew())

    wrapped = cute.compile(kernels.blend, *pointers()[:4], *objects, stream.handle)

    def wrapper(times: int) -> None:
        for _ in range(times):
            wrapped(*pointers())

    def only_pointers(times: int) -> None:
        for _ in range(times):
            pointers()

    if works(sink, "wrapper", wrapped, *pointers()):
        variants["wrapper: 4 pointers, 3 raw, stream, made anew"] = wrapper
        variants["of that, making the pointers and stream"] = only_pointers
    # TVM-FFI comes last: a hang or a crash in it must not take the rest along.
    sink.put("launch", us=in_turns(variants, max(5, rounds // 4)))

    ffi = compile_ffi(sink, kernels.axpb, x.ffi_tensor(), y.ffi_tensor(), *objects, stream.handle)
    if ffi is not None:
        ends = (x.ffi_tensor(), y.ffi_tensor())
        ffi_raw = (*ends, alpha, beta, COUNT, stream.handle)
        if check("TVM-FFI raw", ffi, *ffi_raw):
            variants["TVM-FFI raw"] = repeat(ffi, *ffi_raw)
        ffi_held = (*ends, *objects, stream.handle)
        if check("TVM-FFI objects reused", ffi, *ffi_held):
            variants["TVM-FFI objects reused"] = repeat(ffi, *ffi_held)
            variants["TVM-FFI objects rebuilt"] = rebuilt(ffi, ends)

    sink.put("launch", us=in_turns(variants, rounds))
    del keep


def scalars(sink: Sink, mode: str, rounds: int) -> None:
    """Cost by number of scalars: raw, the C call alone, TVM-FFI."""
    for with_ffi in (False, True):
        for number in kernels.SUMS:
            _scalars(sink, number, rounds if with_ffi else max(5, rounds // 4), with_ffi)


def _scalars(sink: Sink, number: int, rounds: int, with_ffi: bool) -> None:
    stream = device.Stream()
    out = device.Buffer(kernels.WARP)
    function = kernels.SUMS[number]
    raw = tuple(turn + 1 if turn % 2 == 0 else turn + 0.5 for turn in range(number))
    objects = tuple(
        (cutlass.Int32 if turn % 2 == 0 else cutlass.Float32)(v) for turn, v in enumerate(raw)
    )
    compiled = cute.compile(function, out.tensor, *objects, stream.handle)
    c_function, packed, keep = device.bare_call(compiled, (out.tensor, *objects, stream.handle))
    variants: dict[str, Batch] = {}
    right = {}

    def check(name: str, call: Any, *args: Any) -> None:
        out.poison()
        device.synchronize()
        if works(sink, f"{name}, {number}", call, *args):
            variants[name] = repeat(call, *args)
            got = np.frombuffer(out.read(), dtype="f4")
            right[name] = bool((got == np.float32(sum(raw))).all())

    check("raw", compiled, out.tensor, *raw, stream.handle)
    check("bare C call", c_function, packed)
    if with_ffi:
        ffi = compile_ffi(sink, function, out.ffi_tensor(), *objects, stream.handle)
        if ffi is None:
            return
        check("TVM-FFI raw", ffi, out.ffi_tensor(), *raw, stream.handle)
    sink.put("scalars", number=number, us=in_turns(variants, rounds), right=all(right.values()))
    del keep


def busy(sink: Sink, mode: str, rounds: int) -> None:
    """Share of the wall time in which the GPU runs kernels of about five microseconds.

    A graph of the same launches, replayed, gives what they take on the GPU when
    nothing waits for the host: from event to event, over their number. A loop of
    plain launches is timed on the host from the first call to the end of the
    last kernel. The share is the first, times the number of launches, over the
    second.
    """
    stream = device.Stream()
    out = device.Buffer(128)
    kinds = (cutlass.Int32(1), cutlass.Float32(1.0), cutlass.Float32(1.0))
    compiled = cute.compile(kernels.spin, out.tensor, *kinds, stream.handle)

    def args(turns: int) -> tuple[Any, ...]:
        return (out.tensor, turns, 0.999, 0.001, stream.handle)

    def on_device(turns: int) -> float:
        compiled(*args(turns))
        device.synchronize()
        graph = device.Graph(stream)
        with graph.capture():
            for _ in range(BATCH):
                compiled(*args(turns))
        for _ in range(5):
            graph.replay()
        return median(graph.milliseconds() for _ in range(15)) * 1e3 / BATCH

    low, high = on_device(1000), on_device(4000)
    slope = max((high - low) / 3000, 1e-6)
    turns = max(1, round(1000 + (BUSY_TARGET_US - low) / slope))
    kernel_us = on_device(turns)

    variants: dict[str, tuple[Any, tuple[Any, ...]]] = {"raw": (compiled, args(turns))}
    c_function, packed, keep = device.bare_call(compiled, args(turns))
    variants["bare C call"] = (c_function, (packed,))
    shares: dict[str, Any] = {}

    def share(name: str) -> None:
        call, arguments = variants[name]
        if not works(sink, f"busy, {name}", call, *arguments):
            return
        walls = []
        for _ in range(max(5, rounds // 5)):
            device.synchronize()
            start = time.perf_counter()
            for _ in range(BUSY_LAUNCHES):
                call(*arguments)
            device.synchronize()
            walls.append((time.perf_counter() - start) * 1e6 / BUSY_LAUNCHES)
        wall = median(walls)
        shares[name] = {"wall_us": round(wall, 3), "share": round(kernel_us / wall, 4)}
        sink.put("busy", turns=turns, kernel_us=round(kernel_us, 3), shares=shares)

    share("raw")
    share("bare C call")
    ffi = compile_ffi(sink, kernels.spin, out.ffi_tensor(), *kinds, stream.handle)
    if ffi is not None:
        variants["TVM-FFI raw"] = (ffi, (out.ffi_tensor(), *args(turns)[1:]))
        share("TVM-FFI raw")
    del keep
