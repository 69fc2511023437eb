"""Child of the tracing tests: traces functions that use scalars in every place, and prints the IR.

``python -m parity.trace_probe [--run]``. Scalars come from ``intern`` where there is one, and from
the constructor in stock. The DSL prints the IR itself (``CUTE_DSL_PRINT_IR``), between lines that
name the scenario. With ``--run`` host functions are compiled and called as well: no GPU is needed.
"""
# Annotations of traced functions must be objects: no postponed evaluation here. What the DSL
# traces looks careless to a linter: variables it only carries, and closures over what a loop binds.
# ruff: noqa: B007, B008, B023, F841

import argparse
import dataclasses
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
os.environ["CUTE_DSL_NO_CACHE"] = "1"
os.environ["CUTE_DSL_PRINT_IR"] = "1"
if "--run" not in sys.argv:
    os.environ["CUTE_DSL_DRYRUN"] = "1"

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float16, Float32, Float64, Int8, Int32, Int64, Uint8

import scalarintern
from parity import battery

RUN = "--run" in sys.argv
INTERNED = scalarintern.is_installed()
SCENARIOS: dict[str, Callable[[], None]] = {}


def make(cls: Any, value: Any) -> Any:
    """Make a scalar: a shared one, or in stock a fresh one."""
    return cls.intern(value) if INTERNED else cls(value)


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    """Register a scenario under its name."""
    SCENARIOS[function.__name__] = function
    return function


def say(*words: Any) -> None:
    """Print a line at once, as the DSL prints past our buffer."""
    print(*words, flush=True)


def trace(function: Any, *arguments: Any, call: tuple[Any, ...] | None = None) -> None:
    """Compile a function; with --run also call it, with ``call`` if that is not the arguments."""
    try:
        compiled = cute.compile(function, *arguments)
    except Exception as error:
        if not RUN:
            raise
        say("not compiled here:", type(error).__name__)
        return
    if RUN:
        for _ in range(2):
            compiled(*(arguments if call is None else call))


def check_plain(*scalars: Any) -> None:
    """Check that no trace wrote anything into scalars; stock's Boolean caches by itself."""
    for scalar in scalars:
        say("type of value:", type(scalar.value).__name__)
        if INTERNED:
            held = {name: one for name, one in vars(scalar).items() if name != "value"}
            assert all(one is None for one in held.values()), held
            assert make(type(scalar), scalar.value) is scalar


#: Makes a tensor in registers, whatever the release calls it.
register_tensor = getattr(cute, "make_rmem_tensor", None) or cute.make_fragment
SEVEN = make(Int32, 7)
HALF = make(Float32, 0.5)
YES = make(Boolean, True)


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Scalars in a frozen dataclass."""

    count: Any
    scale: Any


@dataclasses.dataclass
class Mutable:
    """A scalar in a dataclass that is written to."""

    count: Any


class Named(NamedTuple):
    """Scalars in a NamedTuple."""

    count: Any
    scale: Any


@scenario
def module_global() -> None:
    """A scalar that is a global of the module."""

    @cute.jit
    def function(a: Int32, b: Float32):
        cute.printf("%d %f\n", a + SEVEN, b * HALF)

    trace(function, 1, 2.0)
    check_plain(SEVEN, HALF)


@scenario
def closure() -> None:
    """Scalars of several classes that a nested function closes over."""
    seven, half, yes = make(Int32, 7), make(Float32, 0.5), make(Boolean, True)
    wide, double = make(Int64, 2**40), make(Float64, 0.1)

    @cute.jit
    def function(a: Int32, b: Float32):
        cute.printf("%d %f\n", a + seven * seven - seven, b * half + half)
        cute.printf("%d %f\n", wide + a, double + Float64(b))
        cute.printf("%d\n", (a > 3) & yes)

    trace(function, 1, 2.0)
    check_plain(seven, half, yes, wide, double)


@scenario
def constexpr() -> None:
    """A scalar as a constexpr argument, in trace-time branches and loops."""

    @cute.jit
    def function(a: Int32, n: cutlass.Constexpr, m: cutlass.Constexpr = make(Int32, 2)):
        total = a
        for i in cutlass.range_constexpr(n.value):
            total = total + n + i
        if cutlass.const_expr(m.value == 2):
            total = total * m
        cute.printf("%d\n", total)

    three = make(Int32, 3)
    trace(function, 1, three, call=(1,))
    trace(function, 1, three, make(Int32, 5), call=(1,))
    check_plain(three, make(Int32, 2))


@scenario
def default() -> None:
    """Scalars as defaults of dynamic parameters, used and replaced."""

    @cute.jit
    def inner(a: Int32, b: Int32 = make(Int32, 7), c: Float32 = make(Float32, 0.5)):
        cute.printf("%d %f\n", a + b, c)

    @cute.jit
    def function(a: Int32, b: Int32 = make(Int32, 7), c: Float32 = make(Float32, 0.5)):
        inner(a)
        inner(a, b)
        cute.printf("%d %f\n", a + b, c)

    trace(function, 1, make(Int32, 7), make(Float32, 0.5))
    trace(function, 1, make(Int32, 8), HALF)
    check_plain(make(Int32, 7), make(Float32, 0.5))


@scenario
def argument() -> None:
    """Scalars as dynamic arguments of the function that is compiled and of inner ones."""

    @cute.jit
    def inner(a: Int32, b: Float32):
        return a + 1, b + HALF

    @cute.jit
    def function(a: Int32, b: Float32, c: Int64, d: Boolean):
        x, y = inner(SEVEN, HALF)
        cute.printf("%d %f %d\n", a + x, b + y, c)
        if d:
            cute.printf("yes\n")

    trace(function, make(Int32, 7), make(Float32, 0.5), make(Int64, 7), make(Boolean, True))
    check_plain(make(Int32, 7), make(Float32, 0.5), make(Int64, 7), make(Boolean, True))


@scenario
def dataclass_fields() -> None:
    """Scalars as fields of dataclasses, closed over and replaced."""
    frozen = Frozen(make(Int32, 7), make(Float32, 0.5))
    other = dataclasses.replace(frozen, count=make(Int32, 9))
    mutable = Mutable(make(Int32, 7))

    @cute.jit
    def function(a: Int32, b: Float32):
        cute.printf("%d %f\n", a + frozen.count + other.count, b * frozen.scale)
        cute.printf("%d\n", a + mutable.count)

    trace(function, 1, 2.0)
    check_plain(frozen.count, frozen.scale, other.count, mutable.count)


@scenario
def named_tuple_fields() -> None:
    """Scalars as fields of a NamedTuple that a loop carries."""
    named = Named(make(Int32, 7), make(Float32, 0.5))

    @cute.jit
    def function(a: Int32, b: Float32):
        count, scale = named
        for i in cutlass.range(a):
            count = count + i
            scale = scale * named.scale
        cute.printf("%d %f\n", count, scale)

    trace(function, 3, 2.0)
    check_plain(*named)


@scenario
def containers() -> None:
    """Scalars in tuples, lists and dicts, and equal ones of two owners in one loop."""
    pair = (make(Int32, 7), make(Int32, 7))
    table = {"a": make(Int32, 7), "b": [make(Float32, 0.5)]}

    @cute.jit
    def function(a: Int32, b: Float32):
        x = pair[0]
        y = b
        for i in cutlass.range(a):
            x = x + pair[1]
            y = y * table["b"][0]
        cute.printf("%d %f %d\n", x, y, pair[0] + pair[1])
        cute.printf("%d %f\n", table["a"] + a, table["b"][0] + b)

    trace(function, 3, 2.0)
    check_plain(*pair, table["a"], table["b"][0])


@scenario
def two_owners() -> None:
    """Equal scalars of two owners, one of them carried by a loop, the other read after it."""
    first, second = make(Float32, 0.5), make(Float32, 0.5)

    @cute.jit
    def function(n: Int32):
        y = first
        for i in cutlass.range(n):
            y = y * first
        cute.printf("%f %f\n", y, second + n)

    trace(function, 3)
    check_plain(first, second)


@scenario
def two_owners_in_tuples() -> None:
    """Equal scalars of two owners, one in a NamedTuple that a loop reads, one read after it."""
    named = Named(make(Int32, 7), make(Float32, 0.5))
    table = {"a": make(Int32, 7), "b": [make(Float32, 0.5)]}

    @cute.jit
    def function(a: Int32, b: Float32):
        count, scale = named
        for i in cutlass.range(a):
            count = count + i
            scale = scale * named.scale
        cute.printf("%d %f\n", count, scale)
        cute.printf("%d %f\n", table["a"] + a, table["b"][0] + b)

    trace(function, 3, 2.0)
    check_plain(*named, table["a"], table["b"][0])


@scenario
def branches() -> None:
    """Scalars that branches assign, compare and select."""
    seven, half, no = make(Int32, 7), make(Float32, 0.5), make(Boolean, False)

    @cute.jit
    def function(a: Int32, b: Float32):
        x = seven
        y = half
        flag = no
        if a > seven:
            x = seven + a
            flag = a == seven
        elif a == 3:
            x = seven - 1
            y = b
        else:
            y = half * b
        if flag:
            x = seven
        cute.printf("%d %f\n", x, y)

    trace(function, 1, 2.0)
    check_plain(seven, half, no)


@scenario
def loops() -> None:
    """Two variables that begin as one object, carried by for and while loops."""
    seven, half = make(Int32, 7), make(Float32, 0.5)

    @cute.jit
    def function(n: Int32):
        a = seven
        b = seven
        c = half
        for i in cutlass.range(n):
            a = a + i
            b = b + 2
            c = c + half
        i = seven
        j = seven
        while i < n:
            i = i + 1
            j = j + i
        cute.printf("%d %d %f %d\n", a, b, c, j)

    trace(function, 3)
    check_plain(seven, half)


@scenario
def augmented() -> None:
    """Augmented assignments to variables that begin as a shared scalar."""
    seven, half = make(Int32, 7), make(Float32, 0.5)

    @cute.jit
    def function(n: Int32, r: Float32):
        x = seven
        x += n
        x *= seven
        x -= 1
        y = half
        y += r
        y /= half
        z = seven
        z += seven
        z <<= 1
        for i in cutlass.range(n):
            x += seven
            y *= half
        cute.printf("%d %f %d\n", x, y, z)

    trace(function, 3, 2.0)
    check_plain(seven, half)


@scenario
def operators() -> None:
    """Arithmetic and comparison of scalars alone, outside and inside of a trace."""
    seven, half = make(Int32, 7), make(Float32, 0.5)
    say(repr(seven + seven), repr(seven * half), repr(-half), repr(seven == seven), repr(seven < 3))
    say(repr(seven.to(Int64)), repr(half.to(Int32)), repr(seven // 2), bool(seven), int(seven))

    @cute.jit
    def function(n: Int32):
        cute.printf("%d %f\n", seven + seven, half * half)
        cute.printf("%d %f\n", n + (seven + seven), half * half + n)
        cute.printf("%d\n", seven.to(Int64) + n)

    trace(function, 3)
    check_plain(seven, half)


@scenario
def every_class() -> None:
    """Constants of every class, both zeros, infinities and a NaN, as they come out in IR."""
    for cls in battery.classes(cutlass.base_dsl.typing):
        if cls._is_abstract or cls.__module__ == "user":
            continue
        for value in (0, 1, -1, 100, 0.0, -0.0, 0.1, 1.01171875, -2.5, 65504.0, math.inf, math.nan):
            try:
                scalar = make(cls, value)
            except Exception as error:
                say(cls.__name__, value, type(error).__name__)
                continue

            @cute.jit
            def function():
                scalar.ir_value()

            say(cls.__name__, value)
            try:
                trace(function)
            except Exception as error:
                say(cls.__name__, value, type(error).__name__)


@scenario
def made_inside() -> None:
    """Scalars made while the trace is open, from constants and from staged values."""

    @cute.jit
    def function(a: Int32, b: Float32):
        five = make(Int32, 5)
        same = make(Int32, a)
        wide = make(Int64, a)
        real = make(Float32, a)
        other = make(Int32, b)
        again = make(Int32, 5)
        assert five is not again
        again += a
        cute.printf("%d %d %f %d\n", same + five, wide, real, other)
        cute.printf("%d\n", again)

    trace(function, 1, 2.0)


@scenario
def one_after_the_other() -> None:
    """Two functions compiled one after the other with the same objects."""
    seven, yes = make(Int32, 7), make(Boolean, True)

    @cute.jit
    def first(a: Int32):
        x = seven
        if a > 2:
            x = seven + a
        cute.printf("%d %d\n", x, yes)

    @cute.jit
    def second(a: Int32):
        x = seven
        for i in cutlass.range(a):
            x = x + seven
        cute.printf("%d %d\n", x, yes)

    for _ in range(2):
        trace(first, 1)
        trace(second, 1)
    check_plain(seven, yes)


@scenario
def from_two_threads() -> None:
    """Two functions that use the same objects, compiled from two threads in turns."""
    seven, yes = make(Int32, 7), make(Boolean, True)
    lock = threading.Lock()

    @cute.jit
    def function(a: Int32):
        x = seven
        if yes & (a > 1):
            x = x + a
        cute.printf("%d\n", x)

    def work() -> None:
        with lock:
            trace(function, 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_plain(seven, yes)


@scenario
def while_another_thread_traces() -> None:
    """A thread interns, and traces a function of its own, while a trace is open on this one."""
    seven, yes = make(Int32, 7), make(Boolean, True)
    raised = []

    @cute.jit
    def inner(a: Int32):
        tensor = register_tensor(4, Boolean)
        tensor[0] = yes
        cute.printf("%d\n", seven + a)

    def work() -> None:
        try:
            if INTERNED:
                assert make(Int32, 7) is seven
                assert make(Int32, 8) is make(Int32, 8)
            trace(inner, 1)
            if INTERNED:
                assert make(Int32, 7) is seven
        except BaseException as error:
            raised.append(error)

    def meanwhile() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    @cute.jit
    def function(a: Int32):
        tensor = register_tensor(4, Boolean)
        x = seven + a
        tensor[0] = fresh
        meanwhile()
        tensor[1] = fresh
        cute.printf("%d\n", x + seven)

    # Stock keeps the int8 value on the object: one for either trace.
    fresh = make(Boolean, True)
    trace(function, 1)
    say("raised in the thread:", *(type(error).__name__ for error in raised))
    check_plain(seven, yes, fresh)


@scenario
def boolean_stored() -> None:
    """Booleans stored to a tensor, in three functions: stock needs fresh ones for each."""
    for _ in range(3):
        yes, no = make(Boolean, True), make(Boolean, False)

        @cute.jit
        def function(a: Int32):
            tensor = register_tensor(4, Boolean)
            tensor[0] = yes
            tensor[1] = no
            tensor[2] = yes
            if a > 3:
                tensor[3] = yes
            for i in cutlass.range(a):
                tensor[i] = no
            tensor[a] = True

        trace(function, 1)
        check_plain(yes, no)


@scenario
def boolean_stored_in_a_branch() -> None:
    """Equal Booleans, each of another owner, stored in a branch and after it, and in a kernel."""
    first, second, third, fourth = (make(Boolean, True) for _ in range(4))

    @cute.kernel
    def device(a: Int32):
        tensor = register_tensor(4, Boolean)
        for i in cutlass.range(a):
            tensor[i] = third
        tensor[1] = fourth

    @cute.jit
    def function(a: Int32):
        tensor = register_tensor(4, Boolean)
        if a > 3:
            tensor[0] = first
        tensor[1] = second
        device(a).launch(grid=(1, 1, 1), block=(1, 1, 1))

    trace(function, 1)
    check_plain(first, second, third, fourth)


@scenario
def booleans_of_two_owners() -> None:
    """Equal Booleans of two owners, stored in one block."""
    first, second = make(Boolean, True), make(Boolean, True)

    @cute.jit
    def function(a: Int32):
        tensor = register_tensor(4, Boolean)
        tensor[0] = first
        tensor[1] = second

    trace(function, 1)
    check_plain(first, second)


@scenario
def boolean_as_int8() -> None:
    """The int8 value of a Boolean in two traces, and of a staged one."""
    for _ in range(2):
        yes = make(Boolean, True)

        @cute.jit
        def function(a: Int32):
            assert yes.ir_value_int8() is yes.ir_value_int8()
            staged = a > 3
            assert staged.ir_value_int8() is staged.ir_value_int8()

        trace(function, 1)
        check_plain(yes)


@scenario
def kernel() -> None:
    """A kernel that takes, closes over and stores scalars, launched with scalars."""
    seven, half = make(Int32, 7), make(Float32, 0.5)
    small, brain = make(Float16, -0.0), make(BFloat16, 1.01171875)
    byte, octet = make(Int8, -1), make(Uint8, 255)

    @cute.kernel
    def device(a: Int32, b: Int32, t: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        x = seven
        if tid == 0:
            x = x + a + b
            t[0] = half
        for i in cutlass.range(a):
            x = x + seven
            t[i] = half + t[i]
        cute.printf("%d %f %f\n", x, Float32(small), Float32(brain))
        cute.printf("%d %d\n", Int32(byte), Int32(octet))

    @cute.jit
    def function(a: Int32, p: cute.Pointer):
        t = cute.make_tensor(p, cute.make_layout(4))
        device(a, seven, t).launch(grid=(seven, 1, 1), block=(make(Int32, 32), 1, 1))

    trace(function, 1, cute.runtime.make_ptr(Float32, 16, cute.AddressSpace.gmem))
    check_plain(seven, half, small, brain, byte, octet)


@scenario
def trace_that_fails() -> None:
    """A trace that ends in an error, with the next one and intern as usual after it."""
    seven, yes = make(Int32, 7), make(Boolean, True)

    @cute.jit
    def failing(a: Int32):
        x = seven + a
        yes.ir_value_int8()
        raise RuntimeError("on purpose")

    for _ in range(2):
        try:
            trace(failing, 1)
        except Exception as error:
            say("raised:", type(error).__name__)
        yes = make(Boolean, True)
    if INTERNED:
        assert make(Int32, 7) is seven
    SCENARIOS["branches"]()


#: Scenarios with nothing to call: kernels need a GPU, and so does memory that a call points to.
NOT_RUN = {"every_class", "boolean_stored_in_a_branch", "kernel", "trace_that_fails"}


@scenario
def launches() -> None:
    """One compiled function called with shared, fresh and raw arguments, and what C received."""

    @cute.jit
    def function(a: Int32, b: Float32, c: Int64, d: Boolean, e: Float64, n: cutlass.Constexpr):
        x = SEVEN
        for i in cutlass.range(a):
            x = x + SEVEN
        if d:
            x = x + 1000
        cute.printf("%d %f %d %f %d\n", x, b * HALF, c, e, x + n)

    three = make(Int32, 3)
    staged = (SEVEN, HALF, make(Int64, 7), YES, make(Float64, 0.1))
    trace(function, *staged, three, call=staged)
    if RUN:
        try:
            compiled = cute.compile(function, *staged, three)
        except Exception as error:
            say("not compiled here:", type(error).__name__)
            return
        say(compiled.ir_module)
        for _ in range(3):
            compiled(SEVEN, HALF, make(Int64, 2**40), YES, make(Float64, 0.1))
            compiled(7, 0.5, 2**40, True, 0.1)
            compiled(make(Int32, 5), make(Float32, -0.0), make(Int64, -1), make(Boolean, 0), 1e300)
            compiled(Int32(5), Float32(0.0), Int64(-1), Boolean(False), Float64(0.1))
    check_plain(SEVEN, HALF, YES, three)


def main() -> None:
    """Run all scenarios, each between its name and its end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for name, function in SCENARIOS.items():
        if (options.names and name not in options.names) or (RUN and name in NOT_RUN):
            continue
        say(f"=== {name}")
        try:
            function()
        except Exception as error:
            say(f"failed: {type(error).__name__}: {str(error)[:2000]}")
            traceback.print_exc()
    say("=== end")


if __name__ == "__main__":
    main()
