"""Times launches on the host, stock and interned turn about, for ``python -m benchmarks``.

    launch_bench.py SLICES

Needs no GPU: the compiled host functions do nothing. Rows of one table are timed in
turn, in slices so short that the fastest of many is undisturbed, by the CPU time of
the thread. Reports one JSON object: microseconds a call by table, mode and row, and
what could not be timed here with the reason.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# ruff: noqa: E402
# The report alone goes to standard output; a release may write there as it is imported.
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass.cute.runtime import make_ptr

import scalarintern
from scalarintern.tools.children.speed_cases import shortened

CALLS = 256
SCALARS = (1, 2, 3, 4, 8, 16, 32, 64)
#: Turns of stock and interned: the machine is not as fast in one minute as in the next.
TURNS = 5


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


def timed(rows: dict[str, Any], slices: int, best: dict[str, float]) -> None:
    """Time rows in turn; keeps the best slice of each, in microseconds a call."""
    for run in rows.values():
        run(4 * CALLS)
    for _ in range(slices):
        for name, run in rows.items():
            best[name] = min(best.get(name, float("inf")), run(CALLS) / 1000)


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


def noop_rows(left_out: dict[str, str]) -> dict[str, Any]:
    """Return rows of the table of three scalars: the release's launch, and its rivals."""
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
    rows["bare"] = loop("entry(packed)", names)
    try:
        rival = cute.compile(noop, 1, 1.0, 1, options="--enable-tvm-ffi")
        rival(64, 0.125, -5)
    except Exception as error:
        left_out["tvm_ffi"] = shortened(error)
    else:
        names["f"] = rival
        for name in ("raw", "objects", "rebuilt"):
            rows[f"tvm_ffi {name}"] = loop(statements[name], names)
    return rows


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
        "bare": loop("entry(packed)", names),
        "build": loop("only_build(128, 64, 0.125)", names),
        "wrapper": loop("wrapper(128, 64, 0.125)", names),
        "reused": loop("f(q, k, v, o, 128, 64, 0.125, stream)", names),
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


def tables(folder: str, left_out: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the rows of each table; none, with the reason, where there is nothing to compare."""
    record = scalarintern.install()
    scalarintern.uninstall()
    if not record.launch:
        left_out["launch"] = f"launches stay the release's: {record.launch_reason or record.reason}"
        return {}
    try:
        return {
            "noop": noop_rows(left_out),
            "wrapper": wrapper_rows(),
            "scaling": scaling_rows(folder),
        }
    except Exception as error:
        left_out["launch"] = f"compiling fails: {shortened(error)}"
        return {}


def main(slices: int) -> None:
    """Time every table in both modes and report."""
    left_out: dict[str, str] = {}
    times: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        found = tables(folder, left_out)
        for mode in ("stock", "interned") * TURNS:
            if mode == "interned":
                scalarintern.install()
            for key, rows in found.items():
                # Stock takes its time over 64 scalars.
                count = max(slices // 5, 2) if key == "scaling" else slices
                timed(rows, count, times.setdefault(key, {}).setdefault(mode, {}))
            scalarintern.uninstall()
    release = importlib.metadata.version("nvidia-cutlass-dsl")
    report = {"release": release, "microseconds": times, "left_out": left_out}
    print(json.dumps(report), file=OUT, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
