"""Times marshalling and launching, stock and interned turn about in one process.

    speed_cases.py ROUNDS

Reports the cases it can run here, why others can't be run, and then one line a case and round:
seconds a call by mode. Modes are ``stock``, ``interned`` and, for launches, ``tvm_ffi``.
"""

# No postponed annotations here: the DSL reads those of the function that it compiles.
import gc
import importlib.metadata
import importlib.util
import itertools
import json
import os
import sys
import time
import timeit
from typing import Any

SECONDS = 0.02
#: Case: what it is, the statement in stock, the statement interned, calls it makes.
REGISTRY_CASES = {
    "hit_int": ("Int32 x.__c_pointers__()", "x.__c_pointers__()", None, 1),
    "hit_float": ("Float32 y.__c_pointers__()", "y.__c_pointers__()", None, 1),
    "intern_int": ("Int32(64), Int32.intern(64)", "Int32(64)", "Int32.intern(64)", 1),
    "intern_float": (
        "Float32(0.125), Float32.intern(0.125)", "Float32(0.125)", "Float32.intern(0.125)", 1,
    ),
    "miss": (
        "Int64(new value).__c_pointers__()",
        "for v in block(): Int64(v).__c_pointers__()", None, 1000,
    ),
    "miss_float": (
        "Float32(new value).__c_pointers__()",
        "for v in floats(): Float32(v).__c_pointers__()", None, 1000,
    ),
    "miss_intern": (
        "Int64(new value).__c_pointers__(), Int64.intern(new value)",
        "for v in block(): Int64(v).__c_pointers__()",
        "for v in block(): Int64.intern(v)", 1000,
    ),
}  # fmt: skip
LAUNCH_CASES = {
    "launch_raw": ("launch with 64, 0.125, -5", "f(64, 0.125, -5)", 1),
    "launch_objects": ("launch with 3 scalar objects", "f(x, y, z)", 1),
}


def compiled(cutlass: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a compiled host function that does nothing, plain and for TVM-FFI, or why not."""
    import cutlass.cute as cute

    @cute.jit
    def nothing(a: cutlass.Int32, b: cutlass.Float32, c: cutlass.Int64) -> None:
        pass

    functions, left_out = {}, {}
    try:
        functions["f"] = cute.compile(nothing, 64, 0.125, -5)
    except Exception as error:
        left_out["launch"] = f"compiling fails: {shortened(error)}"
    if "f" in functions:
        if importlib.util.find_spec("tvm_ffi") is None:
            left_out["tvm_ffi"] = "not installed (pip install apache-tvm-ffi)"
        else:
            try:
                functions["g"] = cute.compile(nothing, 64, 0.125, -5, options="--enable-tvm-ffi")
            except Exception as error:
                left_out["tvm_ffi"] = shortened(error)
    return functions, left_out


def shortened(error: BaseException) -> str:
    """Return an error as one line of bounded length, printable everywhere."""
    words = str(error).encode("ascii", "ignore").decode().split()
    return f"{type(error).__name__}: {' '.join(words)[:300]}"


def seconds_a_call(statement: str, names: dict[str, Any], calls: int) -> float:
    """Time a statement for about `SECONDS`, with the collector off, after a short warm-up.

    The time is that of the thread on a CPU: what else the machine runs does not count.
    """
    timer = timeit.Timer(statement, timer=time.thread_time, globals=names)
    number = 1
    while (took := timer.timeit(number)) < SECONDS / 20:
        number *= 2
    number = max(1, round(number * SECONDS / took))
    seconds = timer.timeit(number) / (number * calls)
    gc.collect()
    return seconds


def main(rounds: int) -> None:
    """Time each case in each mode and report as it goes."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def report(**fields: object) -> None:
        print(json.dumps(fields), file=out)

    import cutlass

    import scalarintern

    scalarintern.uninstall()
    new = itertools.count(1 << 40)
    new_floats = itertools.count(1 / 1024, 1 / 1024)
    names = {
        "Int32": cutlass.Int32,
        "Int64": cutlass.Int64,
        "Float32": cutlass.Float32,
        "x": cutlass.Int32(64),
        "y": cutlass.Float32(0.125),
        "z": cutlass.Int64(-5),
        "block": lambda: itertools.islice(new, 1000),
        # Steps of a power of two: Float32 holds 2**24 of them exactly.
        "floats": lambda: itertools.islice(new_floats, 1000),
    }
    functions, left_out = compiled(cutlass)
    names.update(functions)
    # Warm every statement up once in stock, so that both modes find the same process.
    cases = {}
    for key, (title, stock, interned, calls) in REGISTRY_CASES.items():
        statements = {"stock": stock, "interned": interned or stock}
        cases[key] = (title, statements, calls)
    if "f" in functions:
        for key, (title, statement, calls) in LAUNCH_CASES.items():
            statements = {"stock": statement, "interned": statement}
            if "g" in functions:
                statements["tvm_ffi"] = statement.replace("f(", "g(", 1)
            cases[key] = (title, statements, calls)
    report(
        event="start",
        release=importlib.metadata.version("nvidia-cutlass-dsl"),
        python=".".join(map(str, sys.version_info[:3])),
        cases={key: title for key, (title, _, _) in cases.items()},
        left_out=left_out,
    )
    for number in range(rounds):
        for key, (_, statements, calls) in cases.items():
            taken = {}
            for mode in statements if number % 2 else reversed(statements):
                if mode == "interned":
                    scalarintern.install()
                taken[mode] = seconds_a_call(statements[mode], names, calls)
                scalarintern.uninstall()
            report(event="round", case=key, number=number, seconds=taken)


if __name__ == "__main__":
    main(int(sys.argv[1]))
