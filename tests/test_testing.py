"""The leak assertions: what they see, what does not fool them, what they say."""

from __future__ import annotations

import ctypes
import gc
import sys

import pytest
from cli_support import needs_dsl, python

pytest.importorskip("pympler")

from scalarintern.testing import GrowthError, assert_no_growth, measure_growth

kept: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_else_counted():
    """Put aside what the tests before this one left: a million objects, counted a dozen times."""
    global kept
    gc.collect()
    gc.freeze()
    kept = []  # what it refers to is to be counted
    yield
    kept.clear()
    gc.unfreeze()


def _cast():
    number = ctypes.c_int(64)
    ctypes.cast(ctypes.pointer(number), ctypes.c_void_p)


def _cycle():
    one: list[object] = []
    one.append({"one": one})


def test_a_function_that_keeps_nothing_passes():
    """What a function makes and drops is no growth, whatever it is."""
    assert_no_growth(lambda: [{"number": float(number)} for number in range(1000, 1050)])


def test_objects_that_stay_are_named_with_their_number():
    """The failure names the type, the objects and the bytes that each round leaves."""
    with pytest.raises(GrowthError, match=r"bytearray: \+2 objects a round") as failed:
        assert_no_growth(lambda: kept.extend([bytearray(100), bytearray(100)]))

    [row] = [row for row in failed.value.growth.types if row.type_name == "bytearray"]
    assert row.objects_per_round == 2
    assert row.bytes_per_round > 200
    assert "in each of 3 windows of 100 rounds, collector off" in str(failed.value)


def test_bytes_that_the_collector_does_not_track_are_seen():
    """Objects that gc does not track count, too: here bytes in a list."""
    with pytest.raises(GrowthError, match=r"bytes: \+1 objects a round"):
        assert_no_growth(lambda: kept.append(bytes(len(kept) + 50)))


def test_a_cycle_is_growth_while_the_collector_is_off():
    """A cycle is found, with the types in it."""
    growth = measure_growth(_cycle)

    assert {"list", "dict"} <= {row.type_name for row in growth.types}
    assert growth.unreachable_per_round == 2
    assert growth.cycles[0].types == ("dict", "list")
    assert not growth.from_ctypes_cast


def test_a_cycle_is_none_where_it_is_collected():
    """With ``collect=True`` only what stays reachable counts."""
    assert_no_growth(_cycle, collect=True)
    with pytest.raises(GrowthError, match="collected before each count"):
        assert_no_growth(lambda: kept.append([]), collect=True)


def test_the_ctypes_cast_is_known_and_the_message_says_what_to_do(monkeypatch):
    """The cast cycle is recognized; the advice depends on whether the DSL is loaded."""
    monkeypatch.delitem(sys.modules, "cutlass", raising=False)

    with pytest.raises(GrowthError) as failed:
        assert_no_growth(_cast)

    assert failed.value.growth.from_ctypes_cast
    assert failed.value.growth.unreachable_per_round == 3
    assert "LP_c_int <-> dict" in str(failed.value) or "dict <-> LP_c_int" in str(failed.value)
    assert "ctypes.addressof" in str(failed.value)
    monkeypatch.setitem(sys.modules, "cutlass", object())
    assert "put `import scalarintern` into the program, or upgrade" in str(failed.value)


def test_a_reference_that_c_code_keeps_is_seen():
    """An object that nothing Python can see refers to shows in the allocator's blocks."""

    def lose():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(b"x" * (len(kept) + 50)))

    with pytest.raises(GrowthError, match="keeps a reference too many"):
        assert_no_growth(lose)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is no glibc")
def test_memory_that_c_code_does_not_free_is_seen():
    """malloc() without free() shows, though no Python object stays."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p

    with pytest.raises(GrowthError, match="does not free what it allocates") as failed:
        assert_no_growth(lambda: malloc(ctypes.c_size_t(200)))

    # The C library counts for the whole process: a little is freed elsewhere meanwhile.
    assert 180 <= failed.value.growth.memory_per_round < 260
    assert_no_growth(lambda: malloc(ctypes.c_size_t(200)), memory_limit=None)


def test_a_cache_that_fills_is_no_growth():
    """A bounded cache that fills while being watched does not fail."""
    cache: dict[int, object] = {}
    count = iter(range(10**9))

    def look_up():
        number = next(count)
        return cache.setdefault(number % 150, [number])

    assert_no_growth(look_up)


def test_a_counter_that_leaves_the_small_ints_is_no_growth():
    """An int that outgrows the interpreter's shared ones does not fail."""
    state = {"count": 0}

    def count():
        state["count"] += 1

    assert_no_growth(count, rounds=300)


def test_the_limit_lets_a_known_growth_pass():
    """Up to ``limit`` objects of a type a round are let pass, and no more."""
    assert_no_growth(lambda: kept.append([]), limit=1, memory_limit=None)
    with pytest.raises(GrowthError):
        assert_no_growth(lambda: kept.extend([[], []]), limit=1, memory_limit=None)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_state_of_the_collector_is_restored(enabled):
    """Whether it passes, fails or raises, gc is as it was, and so are its flags and garbage."""
    was = gc.isenabled()
    flags, garbage = gc.get_debug(), len(gc.garbage)
    try:
        (gc.enable if enabled else gc.disable)()
        assert_no_growth(int)
        assert gc.isenabled() is enabled
        assert measure_growth(_cycle)
        assert gc.isenabled() is enabled
        with pytest.raises(ZeroDivisionError):
            assert_no_growth(lambda: 1 / 0)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert (gc.get_debug(), len(gc.garbage)) == (flags, garbage)


def test_types_that_can_be_neither_compared_nor_hashed():
    """A metaclass whose ``__eq__`` and ``__hash__`` raise, as the DSL has one, does no harm."""

    class Meta(type):
        def __eq__(cls, other):
            raise AssertionError("compared")

        def __hash__(cls):
            raise AssertionError("hashed")

    made = Meta("Made", (), {})

    def keep():
        thing = made()
        thing.itself = thing
        kept.append(made())

    growth = measure_growth(keep)

    [row] = [row for row in growth.types if row.type_name.endswith("Made")]
    assert row.objects_per_round == 2
    assert growth.unreachable_per_round >= 1


@pytest.mark.parametrize("arguments", [{"rounds": 0}, {"warmup": -1}])
def test_senseless_arguments_are_refused(arguments):
    """No rounds, or a negative warm-up, is a ValueError."""
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        assert_no_growth(int, **arguments)


_MARSHAL = """
import gc, scalarintern
from scalarintern.testing import GrowthError, assert_no_growth
from cutlass.base_dsl.typing import BFloat16, Float32, Int32, Int64
scalar = Int32(64)
gc.collect(); gc.disable(); scalar.__c_pointers__(); left = gc.collect(); gc.enable()
print("left", left)
def step():
    for cls in (Int32, Int64, Float32):
        cls(64).__c_pointers__()
try:
    assert_no_growth(step)
    print("passed")
except GrowthError as error:
    print(error)
"""


@needs_dsl
def test_interned_marshalling_passes():
    """With ``import scalarintern``, a loop of marshalling calls does not grow, on any release."""
    done = python("-c", _MARSHAL)

    assert done.stdout == "left 0\npassed\n", done.stdout + done.stderr


@needs_dsl
def test_stock_marshalling_fails_where_the_release_leaks():
    """On stock 4.6.1 the same assertion fails and says what to do; on 4.6.2 it passes."""
    done = python("-c", _MARSHAL, SCALARINTERN="0")

    if done.stdout.startswith("left 0"):
        assert done.stdout == "left 0\npassed\n"
        return
    assert done.stdout.startswith("left 3\n"), done.stdout + done.stderr
    assert "LP_c_int" in done.stdout
    assert "A round leaves 9 unreachable objects" in done.stdout
    assert "put `import scalarintern` into the program" in done.stdout
    assert "nvidia-cutlass-dsl >= 4.6.2" in done.stdout


def test_without_pympler_the_message_says_what_to_install():
    """The import says which extra brings pympler."""
    done = python("-c", "import sys; sys.modules['pympler'] = None; import scalarintern.testing")

    assert "pip install 'scalarintern[test]'" in done.stderr
