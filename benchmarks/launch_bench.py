"""What a launch costs on the host, beside stock, TVM-FFI and the bare C call.

Needs no GPU: the compiled host functions do nothing. Rows of one table are timed in
turn, in slices so short that the fastest of many is undisturbed, by the CPU time of
the thread. Stock is timed first, the short way after it, each beside the bare C call
of the same moment, by which the factor between them is corrected.

    python benchmarks/launch_bench.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["SCALARINTERN"] = "0"  # stock comes first

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass.cute.runtime import make_ptr

import scalarintern

CALLS = 256
SCALARS = (1, 2, 3, 4, 8, 16, 32, 64)
#: Contract: factor to reach against stock, and most that it may be of the bare call.
TARGETS = {"raw": (10.0, 3.5), "objects": (5.0, None)}
SLOPE = 0.15


@cute.jit
def noop(a: Int32, b: Float32, c: Int64):
    pass


@cute.jit
def wrapped(
    q: cute.Pointer,
    k: cute.Pointer,
    v: cute.Pointer,
    o: cute.Pointer,
    rows: Int32,
    columns: Int32,
    scale: Float32,
    stream: cuda.CUstream,
):
    pass


def loop(statement: str, names: dict[str, Any]) -> Any:
    """Return a function that runs a statement so many times and returns ns for each."""
    space = {**names, "_clock": time.thread_time_ns}
    source = (
        "def run(n):\n"
        "    start = _clock()\n"
        "    for _ in range(n):\n"
        f"        {statement}\n"
        "    return (_clock() - start) / n\n"
    )
    exec(source, space)
    return space["run"]


def timed(rows: dict[str, Any], rounds: int) -> dict[str, float]:
    """Time rows in turn; returns the best slice of each, in microseconds a call."""
    best = dict.fromkeys(rows, float("inf"))
    for run in rows.values():
        run(4 * CALLS)
    for _ in range(rounds):
        for name, run in rows.items():
            best[name] = min(best[name], run(CALLS))
    return {name: nanoseconds / 1000 for name, nanoseconds in best.items()}


def bare(function: Any, pointers: list[Any]) -> tuple[Any, Any]:
    """Return the compiled C function and a packed array for it."""
    function_executor = getattr(function, "_default_executor", function)
    result = getattr(function_executor, "cuda_result", None)
    packed = (ctypes.c_void_p * (len(pointers) + 1))()
    for i, pointer in enumerate(pointers):
        packed[i] = pointer
    if result is not None:
        packed[len(pointers)] = ctypes.addressof(result)
    return function_executor.capi_func, packed


def noop_rows() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return rows of the table of three scalars: ours, and those of others."""
    function = cute.compile(noop, 1, 1.0, 1)
    function(64, 0.125, -5)
    held = [Int32(64), Float32(0.125), Int64(-5)]
    pointers = [p for scalar in held for p in scalar.__c_pointers__()]
    entry, packed = bare(function, pointers)
    steps = iter(range(1 << 20, 1 << 40)).__next__
    names = {"f": function, "entry": entry, "packed": packed, "keep": pointers, "step": steps}
    names |= dict(zip("abc", held)) | {"Int32": Int32, "Float32": Float32, "Int64": Int64}
    statements = {
        "raw": "f(64, 0.125, -5)",
        "objects": "f(a, b, c)",
        "rebuilt": "f(Int32(64), Float32(0.125), Int64(-5))",
        "keywords": "f(64, b=0.125, c=-5)",
        "new int": "f(step(), 0.125, -5)",
    }
    rows = {name: loop(text, names) for name, text in statements.items()}
    others = {"bare C call": loop("entry(packed)", names)}
    try:
        rival = cute.compile(noop, 1, 1.0, 1, options="--enable-tvm-ffi")
        rival(64, 0.125, -5)
    except Exception as error:
        print(f"no TVM-FFI rows: {type(error).__name__}: {str(error).strip()[:80]}")
    else:
        names["f"] = rival
        for name in ("raw", "objects", "rebuilt"):
            others[f"TVM-FFI {name}"] = loop(statements[name], names)
    return rows, others


def wrapper_rows() -> dict[str, Any]:
    """Return rows of what a library's wrapper does for each call."""
    generic = cute.AddressSpace.generic

    def build(address: int) -> tuple[Any, ...]:
        return (
            make_ptr(cutlass.Float16, address, generic, assumed_align=16),
            make_ptr(cutlass.Float16, address + 4096, generic, assumed_align=16),
            make_ptr(cutlass.Float16, address + 8192, generic, assumed_align=16),
            make_ptr(cutlass.Float16, address + 12288, generic, assumed_align=16),
        )

    first = build(1 << 20)
    function = cute.compile(wrapped, *first, 1, 1, 1.0, cuda.CUstream(0))
    function(*first, 128, 64, 0.125, cuda.CUstream(0))
    address = [1 << 20]

    def wrapper(rows: int, columns: int, scale: float) -> None:
        address[0] += 16
        function(*build(address[0]), rows, columns, scale, cuda.CUstream(7))

    def only_build(rows: int, columns: int, scale: float) -> None:
        address[0] += 16
        (*build(address[0]), rows, columns, scale, cuda.CUstream(7))

    entry, packed = bare(
        function,
        [
            *(p for pointer in first for p in pointer.__c_pointers__()),
            *Int32(128).__c_pointers__(),
            *Int32(64).__c_pointers__(),
            *Float32(0.125).__c_pointers__(),
            cuda.CUstream(0).getPtr(),
        ],
    )
    stream = cuda.CUstream(7)
    names = {"wrapper": wrapper, "only_build": only_build, "entry": entry, "packed": packed}
    names |= {"f": function, "stream": stream} | dict(zip("qkvo", first))
    return {
        "bare C call": loop("entry(packed)", names),
        "building alone": loop("only_build(128, 64, 0.125)", names),
        "wrapper": loop("wrapper(128, 64, 0.125)", names),
        "arguments reused": loop("f(q, k, v, o, 128, 64, 0.125, stream)", names),
    }


def many_scalars(count: int, folder: str) -> Any:
    """Return a compiled function of so many scalars."""
    kinds = [("Int32", "Float32", "Int64")[i % 3] for i in range(count)]
    head = ", ".join(f"a{i}: {kind}" for i, kind in enumerate(kinds))
    name = f"scalars_{count}"
    path = Path(folder, f"{name}.py")
    path.write_text(
        "import cutlass.cute as cute\nfrom cutlass import Float32, Int32, Int64\n\n\n"
        f"@cute.jit\ndef f({head}):\n    pass\n"
    )
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    example = [1.0 if kind == "Float32" else 1 for kind in kinds]
    return cute.compile(module.f, *example), kinds


def scaling_rows(folder: str) -> dict[str, Any]:
    """Return rows by number of scalars: literals, and other values at each call."""
    rows = {}
    for count in SCALARS:
        function, kinds = many_scalars(count, folder)

        def literal(i: int, turn: int, kinds: list[str] = kinds) -> str:
            number = 1000 + 64 * turn + i
            return f"{number}.5" if kinds[i] == "Float32" else f"{number}"

        calls = [f"f({', '.join(literal(i, turn) for i in range(count))})" for turn in range(8)]
        names = {"f": function}
        rows[f"same {count}"] = loop(calls[0], names)
        run = loop("; ".join(calls), names)
        rows[f"other {count}"] = lambda n, run=run: run(n // 8) / 8
    return rows


def slope(times: dict[str, float], kind: str) -> float:
    """Return microseconds a scalar, from the fewest to the most."""
    few, most = SCALARS[0], SCALARS[-1]
    return (times[f"{kind} {most}"] - times[f"{kind} {few}"]) / (most - few)


def main() -> int:
    """Run everything and print it; the exit code tells whether the contract holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    rows, others = noop_rows()
    wrappers = wrapper_rows()
    with tempfile.TemporaryDirectory() as folder:
        scaling = scaling_rows(folder)
        stock = timed({**rows, **others}, options.rounds)
        stock_wrapper = timed(wrappers, options.rounds)
        stock_scaling = timed(scaling, max(options.rounds // 5, 5))
        record = scalarintern.install()
        if not record.launch:
            print(f"launches stay the release's: {record.launch_reason or record.reason}")
            return 1
        fast = timed({**rows, **others}, options.rounds)
        fast_wrapper = timed(wrappers, options.rounds)
        fast_scaling = timed(scaling, options.rounds)

    floor = fast["bare C call"]
    drift = floor / stock["bare C call"]
    print(f"nvidia-cutlass-dsl {record.release}, CPython {platform.python_version()}, CPU only")
    print("\n(Int32, Float32, Int64), no-op host function, us a launch")
    print(f"{'':18}{'stock':>8}{'here':>8}{'faster':>8}{'x bare':>8}")
    holds = True
    factors = {}
    for name in rows:
        factor, share = stock[name] / fast[name] * drift, fast[name] / floor
        factors[name] = {"faster": factor, "of_bare": share}
        least, most = TARGETS.get(name, (None, None))
        met = (least is None or factor >= least) and (most is None or share <= most)
        holds &= met
        print(
            f"{name:18}{stock[name]:8.2f}{fast[name]:8.3f}{factor:8.1f}{share:8.2f}"
            + ("" if met else "  MISSED")
        )
    for name in others:
        print(f"{name:18}{'':8}{fast[name]:8.3f}{'':8}{fast[name] / floor:8.2f}")

    print("\n4 make_ptr, 3 numbers and a CUstream made for each call, us a call")
    print(f"{'':18}{'stock':>8}{'here':>8}")
    for name in wrappers:
        print(f"{name:18}{stock_wrapper[name]:8.2f}{fast_wrapper[name]:8.3f}")

    print("\nlaunch against number of scalars, us")
    print(f"{'':18}" + "".join(f"{count:>8}" for count in SCALARS) + f"{'a scalar':>10}")
    slopes = {}
    for label, times in (("stock", stock_scaling), ("here", fast_scaling)):
        for kind, words in (("same", "same values"), ("other", "others each")):
            values = "".join(f"{times[f'{kind} {count}']:8.2f}" for count in SCALARS)
            slopes[f"{label} {kind}"] = slope(times, kind)
            print(f"{label + ' ' + words:18}{values}{slope(times, kind):10.3f}")
    for kind in ("same", "other"):
        if slopes[f"here {kind}"] > SLOPE:
            holds = False
            print(f"MISSED: more than {SLOPE} us a scalar ({kind})")

    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "release": record.release,
                    "python": platform.python_version(),
                    "stock_us": stock,
                    "here_us": fast,
                    "factors": factors,
                    "wrapper_us": {"stock": stock_wrapper, "here": fast_wrapper},
                    "scaling_us": {"stock": stock_scaling, "here": fast_scaling},
                    "us_a_scalar": slopes,
                    "holds": holds,
                },
                indent=2,
            )
            + "\n"
        )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
