"""Launches of compiled host functions: the short way from the call to C."""

from __future__ import annotations

import copy
import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

cutlass = pytest.importorskip("cutlass")

import cutlass.base_dsl.jit_executor as executors  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass import Float32, Int8, Int32, Int64  # noqa: E402
from cutlass.cute.runtime import make_ptr  # noqa: E402

import scalarintern  # noqa: E402
from scalarintern import launch  # noqa: E402

RELEASE = scalarintern.install().release
OLD = not hasattr(executors, "ExecutionArgs")

if RELEASE not in launch.PROVED:
    pytest.skip(f"not proved on {RELEASE}", allow_module_level=True)


class Argument:
    """A user's JitArgument of one Int32, which may do something when asked."""

    def __init__(self, number: int, meanwhile: Any = None) -> None:
        self.field = Int32(number)
        self.meanwhile = meanwhile
        self.asked = 0

    def __c_pointers__(self) -> list[Any]:
        self.asked += 1
        if self.meanwhile is not None:
            self.meanwhile()
        return list(self.field.__c_pointers__())

    def __get_mlir_types__(self) -> list[Any]:
        return list(self.field.__get_mlir_types__())

    def __new_from_mlir_values__(self, values: Any) -> Any:
        made = object.__new__(Argument)
        made.field = self.field.__new_from_mlir_values__(values)
        return made

    def __extract_mlir_values__(self) -> list[Any]:
        return list(self.field.__extract_mlir_values__())


@cute.jit
def store(out: cute.Pointer, a: Int32, b: Float32, c: Int64 = 9):
    """Store three numbers."""
    cute.make_tensor(cute.recast_ptr(out, dtype=Int32), cute.make_layout(1))[0] = a
    cute.make_tensor(cute.recast_ptr(out + 8, dtype=Float32), cute.make_layout(1))[0] = b
    cute.make_tensor(cute.recast_ptr(out + 16, dtype=Int64), cute.make_layout(1))[0] = c


@cute.jit
def store_argument(out: cute.Pointer, a: Int32, x, b: Int32):
    """Store two numbers and what a user's argument holds."""
    cute.make_tensor(cute.recast_ptr(out, dtype=Int32), cute.make_layout(1))[0] = a
    cute.make_tensor(cute.recast_ptr(out + 8, dtype=Int32), cute.make_layout(1))[0] = x.field
    cute.make_tensor(cute.recast_ptr(out + 16, dtype=Int32), cute.make_layout(1))[0] = b


@cute.jit
def store_plain(out: cute.Pointer, a, b, c):
    """Store three numbers that have no annotation."""
    cute.make_tensor(cute.recast_ptr(out, dtype=Int32), cute.make_layout(1))[0] = a
    cute.make_tensor(cute.recast_ptr(out + 8, dtype=Float32), cute.make_layout(1))[0] = b
    cute.make_tensor(cute.recast_ptr(out + 16, dtype=Int8), cute.make_layout(1))[0] = c.to(Int8)


@cute.jit
def scalars(a: Int32, b: Float32, c: Int64):
    """Take three numbers."""


class Buffer:
    """Memory that a compiled function stores at."""

    def __init__(self) -> None:
        self.bytes = (ctypes.c_uint8 * 32)()
        self.pointer = make_ptr(
            cutlass.Uint8, ctypes.addressof(self.bytes), cute.AddressSpace.generic, assumed_align=8
        )

    def read(self, *kinds: type) -> tuple[Any, ...]:
        """Return what lies at 0, 8, 16 as values of the ctypes types."""
        return tuple(kind.from_buffer(self.bytes, 8 * i).value for i, kind in enumerate(kinds))


INTS = (ctypes.c_int32, ctypes.c_float, ctypes.c_int64)


@pytest.fixture
def out() -> Buffer:
    """Return a buffer to store at."""
    return Buffer()


@pytest.fixture(autouse=True)
def _installed() -> Any:
    scalarintern.uninstall()
    assert scalarintern.install().launch
    yield
    scalarintern.uninstall()
    # As the session found it, for tests in other files.
    scalarintern.install()


def executor_of(function: Any) -> Any:
    """Return the executor that calls of ``function`` end in."""
    return function if OLD else function._default_executor


def launcher_of(function: Any) -> Any:
    """Return the launcher made for ``function``, or None."""
    name = "_scalarintern_executor_launch" if OLD else "_scalarintern_launch"
    held = vars(executor_of(function)) if executor_of(function) is not None else {}
    return held.get(name)


@pytest.fixture
def release_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets an entry for each call bound in the release's way."""
    owner: Any = executors.JitExecutor if OLD else executors.ExecutionArgs
    calls: list[Any] = []
    original = owner.generate_execution_args

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(owner, "generate_execution_args", counted)
    return calls


def caught(call: Any) -> tuple[type, str] | None:
    """Return the type and the message of the exception that ``call`` raises, if any."""
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    return None


# -- values ---------------------------------------------------------------------


def test_values_arrive_in_every_form(out: Buffer, release_calls: list[Any]) -> None:
    """Raw numbers, scalars, keywords and defaults arrive, past the release's binding."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    function(out.pointer, 1, 1.0, 1)
    release_calls.clear()
    found = []
    for args, kwargs in [
        ((64, 0.125, -5), {}),
        ((65, 0.25, -6), {}),
        ((Int32(7), Float32(1.5), Int64(2**40)), {}),
        ((Int32(8), 2.5, 3), {}),
        ((1, -0.0), {}),
        ((2,), {"b": 3.0, "c": 4}),
        ((True, 2, 5), {}),
    ]:
        function(out.pointer, *args, **kwargs)
        found.append(out.read(*INTS))

    assert found == [
        (64, 0.125, -5),
        (65, 0.25, -6),
        (7, 1.5, 2**40),
        (8, 2.5, 3),
        (1, 0.0, 9),
        (2, 3.0, 4),
        (1, 2.0, 5),
    ]
    assert not release_calls


def test_unannotated_numbers_arrive(out: Buffer, release_calls: list[Any]) -> None:
    """Numbers without annotation become what the release's adapters make of them."""
    function = cute.compile(store_plain, out.pointer, 1, 1.0, True)
    function(out.pointer, 1, 1.0, True)
    release_calls.clear()
    kinds = (ctypes.c_int32, ctypes.c_float, ctypes.c_int8)
    found = []
    for args in [(5, 2.5, False), (-6, -0.0, True), (Int32(7), Float32(0.5), True)]:
        function(out.pointer, *args)
        found.append(out.read(*kinds))

    assert found == [(5, 2.5, 0), (-6, 0.0, 1), (7, 0.5, 1)]
    assert not release_calls


def test_signs_of_zero_arrive(out: Buffer) -> None:
    """Both zeros arrive with their signs, in any order."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    signs = []
    for zero in (0.0, -0.0, -0.0, 0.0, Float32(-0.0), 0, Float32(0.0)):
        function(out.pointer, 1, zero, 1)
        signs.append(bytes(out.bytes[8:12]).hex())

    assert signs[:5] == ["00000000", "00000080", "00000080", "00000000", "00000080"]
    assert signs[5:] == ["00000000", "00000000"]


def test_a_written_scalar_passes_its_new_value(out: Buffer) -> None:
    """What is written to a scalar between launches is what the next one passes."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    scalar = Int32(5)
    found = []
    for value in (5, 5, 6, 5):
        scalar.value = value
        function(out.pointer, scalar, 1.0, 1)
        found.append(out.read(ctypes.c_int32))

    assert found == [(5,), (5,), (6,), (5,)]


def test_one_number_in_two_classes_is_not_mixed_up(out: Buffer) -> None:
    """The same Python int has another pointer as an Int64 than as an Int32."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    found = []
    for value in (77, Int64(77), 77, Int32(77), Int64(78), 77):
        function(out.pointer, value, 1.0, 1)
        found.append(out.read(ctypes.c_int32)[0])

    assert found == [77, 77, 77, 77, 78, 77]


def test_another_class_s_scalar_changes_nothing_for_raw_numbers(out: Buffer) -> None:
    """After a Boolean for an Int32, a raw True is still made into an Int32."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    function(out.pointer, 2**20, 1.0, 1)
    for _ in range(3):
        function(out.pointer, cutlass.Boolean(True), Float32(1.0), 1)
    found = []
    for number in (True, False, 2**20, True):
        function(out.pointer, number, 1.0, 1)
        found.append(out.read(ctypes.c_int32)[0])

    assert found == [1, 0, 2**20, 1]


def test_new_values_and_cleared_tables(out: Buffer, release_calls: list[Any]) -> None:
    """Values never seen before arrive, and so does the last one after a clear."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    function(out.pointer, 1, 1.0, 1)
    release_calls.clear()
    for number in range(300_000, 300_600):
        function(out.pointer, number, number / 8, -number)

        assert out.read(*INTS) == (number, number / 8, -number)
        if number % 100 == 0:
            scalarintern.clear()
            gc.collect()
            function(out.pointer, number, number / 8, -number)

            assert out.read(*INTS) == (number, number / 8, -number)
    assert not release_calls


def test_results_are_the_release_s(out: Buffer) -> None:
    """A launch returns what the release returns."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    first = function(out.pointer, 1, 1.0, 1)

    assert [first] * 3 == [function(out.pointer, 1, 1.0, i) for i in range(3)]


# -- errors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((), {}),
        ((1,), {}),
        ((1, 1.0), {"c": "x"}),
        ((1, 1.0), {"nonsense": 1}),
        ((1, 1.0), {"a": 1}),
        ((None, 1.0, 1), {}),
        (("x", 1.0, 1), {}),
        ((float("nan"), 1.0, 1), {}),
        ((float("inf"), 1.0, 1), {}),
        ((2**70, 1.0, 1), {}),
        ((1, 10**400, 1), {}),
    ],
)
def test_errors_are_the_release_s(out: Buffer, args: Any, kwargs: Any) -> None:
    """Wrong calls raise what they raise in stock, and leave the function usable."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)

    def call() -> None:
        function(out.pointer, *args, **kwargs)

    function(out.pointer, 1, 1.0, 1)
    found = caught(call)
    function(out.pointer, 3, 1.0, 1)
    stored = out.read(ctypes.c_int32)
    scalarintern.uninstall()

    assert caught(call) == found
    assert stored == (3,)


def failing_function(codes: list[int], tail: int) -> Any:
    """Return a C function that reports the codes as CUDA results, one a call."""

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    def entry(packed: int) -> int:
        pointers = (ctypes.c_void_p * (tail + 1)).from_address(packed)
        ctypes.c_int32.from_address(pointers[tail]).value = codes.pop(0)
        return 0

    return entry


@pytest.mark.skipif(OLD, reason="functions of this release report no CUDA result")
@pytest.mark.parametrize("code", [1, 700, 987654])
def test_cuda_errors_are_the_release_s(code: int) -> None:
    """A CUDA error code is raised as the release raises it, and is over with the next call."""
    function = cute.compile(scalars, 1, 1.0, 1)
    entry = failing_function([0, code, 0], 3)
    function.capi_func = entry
    found = function(1, 1.0, 1), caught(lambda: function(1, 1.0, 1)), function(1, 1.0, 1)
    scalarintern.uninstall()
    stock = cute.compile(scalars, 1, 1.0, 1)
    stock.capi_func = failing_function([0, code, 0], 3)
    expected = stock(1, 1.0, 1), caught(lambda: stock(1, 1.0, 1)), stock(1, 1.0, 1)

    assert expected == found


def test_what_comes_out_of_the_c_call_is_wrapped_as_in_stock() -> None:
    """An exception out of the C call, a signal handler's perhaps, ends as in stock."""
    function = cute.compile(scalars, 1, 1.0, 1)
    function(1, 1.0, 1)
    code = launcher_of(function).__code__
    cells = dict(zip(code.co_freevars, launcher_of(function).__closure__, strict=True))
    found = caught(lambda: cells["crashed"].cell_contents(LookupError("from outside")))

    def crash(packed: Any) -> None:
        raise LookupError("from outside")

    executor = executor_of(function)
    executor.capi_func = crash
    expected = caught(lambda: executor.run_compiled_program([]))

    assert found == expected
    assert found is not None


# -- user code inside a launch ----------------------------------------------------


def test_a_launch_inside_a_launch(out: Buffer) -> None:
    """A launch of the same function from an argument spoils neither of the two."""
    function = cute.compile(store_argument, out.pointer, 1, Argument(1), 1)
    inner = Buffer()
    found = []

    def meanwhile() -> None:
        function(inner.pointer, 10 * i, Argument(100 * i), 1000 * i)

    for i in range(1, 6):
        function(out.pointer, i, Argument(2 * i, meanwhile), 3 * i)
        kinds = (ctypes.c_int32,) * 3
        found.append((out.read(*kinds), inner.read(*kinds)))

    assert [((i, 2 * i, 3 * i), (10 * i, 100 * i, 1000 * i)) for i in range(1, 6)] == found


def test_arguments_are_asked_once(out: Buffer) -> None:
    """An argument is asked for its pointers once a launch, whatever comes with it."""
    function = cute.compile(store_argument, out.pointer, 1, Argument(1), 1)
    argument = Argument(5)
    for number in (1, 1, 2**20 + 17, Int32(3), Int64(4), True):
        function(out.pointer, number, argument, 2**20 + 19)

    assert argument.asked == 6


def test_an_argument_that_raises(out: Buffer, release_calls: list[Any]) -> None:
    """What an argument raises comes out as it is, and the next launch is quick again."""
    function = cute.compile(store_argument, out.pointer, 1, Argument(1), 1)
    function(out.pointer, 1, Argument(1), 1)
    release_calls.clear()

    def meanwhile() -> None:
        raise LookupError("mine")

    found = caught(lambda: function(out.pointer, 2, Argument(1, meanwhile), 2))
    function(out.pointer, 3, Argument(4), 5)

    assert found == (LookupError, "mine")
    assert out.read(*[ctypes.c_int32] * 3) == (3, 4, 5)
    assert not release_calls


def test_an_argument_of_many_pointers(release_calls: list[Any]) -> None:
    """An unexpected number of pointers goes to C as it would, and is learned."""
    function = cute.compile(scalars, 1, 1.0, 1)
    function(1, 1.0, 1)
    taken = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    def entry(packed: int) -> int:
        size = 5
        pointers = (ctypes.c_void_p * size).from_address(packed)
        taken.append([ctypes.c_int32.from_address(pointers[i]).value for i in (0, 1, 2)])
        return 0

    class Pair(Argument):
        def __c_pointers__(self) -> list[Any]:
            return [*Int32(1).__c_pointers__(), *Int32(2).__c_pointers__()]

    plain = cute.compile(store_argument, Buffer().pointer, 1, Argument(1), 1)
    if OLD:
        plain.capi_func = entry
    else:
        plain.capi_func = entry
    pair = Pair(1)
    for _ in range(4):
        plain(Int32(5), pair, pair, 3)

    assert taken == [[5, 1, 2]] * 4


def test_uninstalling_from_inside_a_launch(out: Buffer) -> None:
    """The launch during which the adapter is taken off comes to its end."""
    function = cute.compile(store_argument, out.pointer, 1, Argument(1), 1)
    function(out.pointer, 1, Argument(1), 1)
    function(out.pointer, 2, Argument(3, scalarintern.uninstall), 4)
    first = out.read(*[ctypes.c_int32] * 3)
    function(out.pointer, 5, Argument(6), 7)

    assert first == (2, 3, 4)
    assert out.read(*[ctypes.c_int32] * 3) == (5, 6, 7)


# -- threads ----------------------------------------------------------------------


def test_threads_do_not_see_each_other_s_values(out: Buffer) -> None:
    """16 threads launch one function, each with numbers of its own, and get those."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    function(out.pointer, 1, 1.0, 1)
    wrong: list[Any] = []
    start = threading.Barrier(16)

    def run(number: int) -> None:
        mine = Buffer()
        scalar = Int32(number)
        start.wait()
        try:
            for i in range(1500):
                a, b, c = number * 1000 + i % 7, number + i % 5 / 8, -number * i
                function(mine.pointer, a, b, c)
                if mine.read(*INTS) != (a, b, c):
                    wrong.append((number, i))
                function(mine.pointer, scalar, b, c)
                if mine.read(*INTS) != (number, b, c):
                    wrong.append((number, i, "scalar"))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(1, 17)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert not wrong


# -- applying and undoing ---------------------------------------------------------


def test_uninstall_restores_existing_functions(out: Buffer, release_calls: list[Any]) -> None:
    """Classes, functions and executors are as before, and launches the release's."""
    scalarintern.uninstall()
    classes = [executors.JitExecutor]
    if not OLD:
        classes += executors.JitCompiledFunction.__subclasses__()
        classes.append(executors.JitCompiledFunction)
    before = [dict(vars(cls)) for cls in classes]
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    function(out.pointer, 1, 1.0, 1)
    held = dict(vars(function)), dict(vars(executor_of(function)))
    scalarintern.install()
    for i in range(3):
        function(out.pointer, i, 1.0, 1)
    made = launcher_of(function)
    scalarintern.uninstall()
    release_calls.clear()
    function(out.pointer, 9, 1.0, 1)

    assert made is not None
    assert [dict(vars(cls)) for cls in classes] == before
    assert (dict(vars(function)), dict(vars(executor_of(function)))) == held
    assert len(release_calls) == 1
    assert out.read(ctypes.c_int32) == (9,)


def test_installing_again_makes_new_launchers(out: Buffer, release_calls: list[Any]) -> None:
    """A function launched under one installation is quick under the next, too."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    for _ in range(3):
        function(out.pointer, 1, 1.0, 1)
        scalarintern.uninstall()
        scalarintern.install()
    function(out.pointer, 1, 1.0, 1)
    release_calls.clear()
    function(out.pointer, 2, 1.0, 1)

    assert not release_calls
    assert out.read(ctypes.c_int32) == (2,)


def test_launch_false_leaves_calls_alone() -> None:
    """With launch=False nothing of the executor is replaced."""
    scalarintern.uninstall()
    before = executors.JitExecutor.__call__
    record = scalarintern.install(launch=False)

    assert not record.launch
    assert executors.JitExecutor.__call__ is before


def test_other_releases_are_left_alone() -> None:
    """On a release that is not in the table nothing is patched, and the reason said."""
    patched: list[Any] = []
    record = launch.apply("4.1.0", lambda cls: None, lambda *line: patched.append(line))

    assert not record.applied
    assert "4.1.0" in record.reason
    assert not patched


def test_debugging_checks_are_not_skipped(out: Buffer, release_calls: list[Any]) -> None:
    """Full argument checks, PyIR facts and other bindings go the release's way."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    function(out.pointer, 1, 1.0, 1)
    function(out.pointer, 1, 1.0, 1)
    switches: list[tuple[Any, str, Any]] = []
    if OLD:
        switches.append((function, "jit_time_profiling", True))
    elif hasattr(function.execution_args, "_full_arg_check"):
        switches.append((function.execution_args, "_full_arg_check", True))
    for owner, name, value in switches:
        before = getattr(owner, name)
        release_calls.clear()
        setattr(owner, name, value)
        function(out.pointer, 1, 1.0, 1)
        setattr(owner, name, before)

        assert len(release_calls) == 1


@pytest.mark.skipif(OLD, reason="what one gets is the executor on this release")
def test_executors_are_quick_too(out: Buffer, release_calls: list[Any]) -> None:
    """What ``to()`` returns launches the same way, and pickles no state of ours."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    executor = function.to(None)
    executor(out.pointer, 1, 1.0, 1)
    release_calls.clear()
    executor(out.pointer, 5, 2.0, 6)

    assert out.read(*INTS) == (5, 2.0, 6)
    assert not release_calls


def test_copies_launch_as_well(out: Buffer) -> None:
    """A shallow copy of a function launches as the function does."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)
    function(out.pointer, 1, 1.0, 1)
    function(out.pointer, 1, 1.0, 1)
    twin = copy.copy(function)
    if OLD:
        # The copy would unload what the original loaded, had it loaded anything.
        assert not twin.cuda_modules
    twin(out.pointer, 6, 1.0, 1)

    assert out.read(ctypes.c_int32) == (6,)


# -- lifetimes ----------------------------------------------------------------------


def test_nothing_of_a_launch_outlives_it(out: Buffer) -> None:
    """Arguments made for a launch live through it and are gone right after it."""
    function = cute.compile(store_argument, out.pointer, 1, Argument(1), 1)
    gc.disable()
    try:
        for i in range(4):
            alive: list[Any] = []
            argument = Argument(i)
            reference = weakref.ref(argument)
            argument.meanwhile = lambda alive=alive, it=reference: alive.append(it())
            scalar = Int32(i)
            scalar_reference = weakref.ref(scalar)
            function(out.pointer, scalar, argument, 1)
            del argument, scalar
            asked = [item is not None for item in alive]
            alive.clear()

            assert asked == [True]
            assert reference() is None
            assert scalar_reference() is None
    finally:
        gc.enable()


def test_launches_leave_nothing_to_collect(out: Buffer) -> None:
    """No launch makes a reference cycle: known value, new value, wrong call or error."""
    function = cute.compile(store, out.pointer, 1, 1.0, 1)

    def calls(number: int) -> None:
        function(out.pointer, 1, 1.0, 1)
        function(out.pointer, number, 1.0, number)
        function(out.pointer, Int32(number), Float32(number / 3), Int64(number))
        function(out.pointer, True, 2, c=number)

    for i in range(3):
        calls(i)
    gc.collect()
    gc.disable()
    try:
        for i in range(50):
            calls(1_000_000 + i)
        found = gc.collect()
    finally:
        gc.enable()

    assert found == 0


def test_compiled_functions_are_let_go(out: Buffer) -> None:
    """A function that was launched goes away as in stock, with its launcher."""
    function = cute.compile(store_argument, out.pointer, 1, Argument(1), 1)
    for i in range(3):
        function(out.pointer, i, Argument(i), i)
    references = [weakref.ref(executor_of(function)), weakref.ref(launcher_of(function))]
    del function
    gc.collect()

    assert [reference() for reference in references] == [None, None]


def test_no_class_is_kept_alive(out: Buffer) -> None:
    """The class of an argument can go although a function took it."""
    function = cute.compile(store_argument, out.pointer, 1, Argument(1), 1)

    class Local(Argument):
        pass

    for i in range(3):
        function(out.pointer, i, Local(i), i)
    reference = weakref.ref(Local)
    del Local
    gc.collect()

    assert reference() is None


GROWTH = """
import gc, sys
import cutlass, cutlass.cute as cute, psutil
from cutlass import Float32, Int32, Int64
import scalarintern

@cute.jit
def scalars(a: Int32, b: Float32, c: Int64):
    pass

assert scalarintern.install().launch
function = cute.compile(scalars, 1, 1.0, 1)
process = psutil.Process()
gc.disable()

def raw(n):
    for _ in range(n):
        function(64, 0.125, -5)

def rebuilt(n):
    for _ in range(n):
        function(Int32(64), Float32(0.125), Int64(-5))

def new(n):
    for i in range(n):
        function(i, i * 0.5, -i)

for kind in (raw, rebuilt, new):
    kind(20_000)
    before = process.memory_info().rss
    kind(int(sys.argv[1]) // (5 if kind is new else 1))
    print(kind.__name__, process.memory_info().rss - before)
"""


def test_memory_does_not_grow_with_launches(tmp_path: Path) -> None:
    """A million launches raw, rebuilt and with new values cost no memory, collector off."""
    pytest.importorskip("psutil")
    script = tmp_path / "growth.py"
    script.write_text(GROWTH)
    count = 1_000_000 if RELEASE in ("4.6.1", "4.8.1") else 200_000
    done = subprocess.run(
        [sys.executable, str(script), str(count)], capture_output=True, text=True, check=True
    )
    growth = {name: int(size) for name, size in map(str.split, done.stdout.splitlines())}

    assert growth.keys() == {"raw", "rebuilt", "new"}
    assert growth["raw"] < 2_000_000
    assert growth["rebuilt"] < 2_000_000
    assert growth["new"] < 16_000_000
