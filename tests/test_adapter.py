"""The adapter on the installed release: identity, pointers, warnings, undoing."""

from __future__ import annotations

import copy
import ctypes
import gc
import math
import pickle
import struct
import subprocess
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalarintern

Run = Callable[..., subprocess.CompletedProcess[str]]


def members(typing: ModuleType) -> dict[tuple[str, str], Any]:
    """Give every own member of every numeric class, of the metaclasses and of ir.Context."""
    pending = [typing.Numeric, typing.DslType, typing.NumericMeta, typing.IntegerMeta]
    pending += [typing.FloatMeta, typing.ir.Context]
    found: dict[tuple[str, str], Any] = {}
    while pending:
        cls = pending.pop()
        found.update({(cls.__qualname__, name): value for name, value in vars(cls).items()})
        pending += type.__subclasses__(cls) if isinstance(cls, typing.NumericMeta) else []
    return found


class TestIdentity:
    """Contract 1 to 4."""

    def test_equal_values_are_one_object(self, dsl: ModuleType) -> None:
        """intern gives one object, of exactly the class, with nobody holding it."""
        assert dsl.Int32.intern(64) is dsl.Int32.intern(64)
        assert type(dsl.Int32.intern(64)) is dsl.Int32
        assert dsl.Int32.intern(64) is not dsl.Int64.intern(64)
        assert scalarintern.intern(dsl.Int32, 64) is dsl.Int32.intern(64)

    def test_values_go_through_the_constructor(self, dsl: ModuleType) -> None:
        """Narrowing is the release's own, and the narrowed value is the key."""
        assert dsl.Int32.intern(3.9) is dsl.Int32.intern(3)
        assert dsl.Int32.intern(True) is dsl.Int32.intern(1)
        assert type(dsl.Int32.intern(True).value) is int
        assert dsl.Uint8.intern(255).value == dsl.Uint8(-1).value
        assert dsl.Float32.intern(2) is dsl.Float32.intern(2.0)
        assert dsl.Int32.intern(dsl.Int32(5)) is dsl.Int32.intern(5)
        assert dsl.Int32.intern(dsl.Float32(5.5)) is dsl.Int32.intern(5)
        assert dsl.Boolean.intern(2) is dsl.Boolean.intern(True)

    def test_errors_are_the_constructors(self, dsl: ModuleType) -> None:
        """What the constructor refuses, intern refuses in the same words."""
        for value in ("x", None, 1j, [1], float("nan"), float("inf"), 2**70):
            with pytest.raises(Exception) as stock:
                dsl.Int32(value)
            with pytest.raises(type(stock.value)) as ours:
                dsl.Int32.intern(value)
            assert str(ours.value) == str(stock.value)

    def test_zeros_and_nans(self, dsl: ModuleType) -> None:
        """0.0 and -0.0 differ, again and again; a NaN is its own payload's object."""
        for _ in range(3):
            zero, minus = dsl.Float32.intern(0.0), dsl.Float32.intern(-0.0)
            assert zero is not minus
            assert math.copysign(1, zero.value) == 1
            assert math.copysign(1, minus.value) == -1
            assert zero is dsl.Float32.intern(float("0.0"))
            assert zero.__c_pointers__()[0] is not minus.__c_pointers__()[0]
        assert dsl.Float32.intern(math.nan) is dsl.Float32.intern(float("nan"))

    @given(st.integers(-(2**31), 2**31 - 1))
    def test_every_int32(self, value: int) -> None:
        """Any value in range is shared, and marshals to its own bytes."""
        typing = pytest.importorskip("cutlass.base_dsl.typing")
        scalar = typing.Int32.intern(value)

        assert typing.Int32.intern(value) is scalar
        assert scalar.value == value
        pointer = scalar.__c_pointers__()[0]
        assert ctypes.string_at(pointer.value, 4) == struct.pack("<i", value)

    @given(st.binary(min_size=8, max_size=8))
    def test_every_double(self, raw: bytes) -> None:
        """Any bit pattern is shared by its bits alone, and marshals to them."""
        typing = pytest.importorskip("cutlass.base_dsl.typing")
        value = struct.unpack("<d", raw)[0]
        scalar = typing.Float64.intern(value)

        assert typing.Float64.intern(struct.unpack("<d", raw)[0]) is scalar
        assert struct.pack("<d", scalar.value) == raw
        assert ctypes.string_at(scalar.__c_pointers__()[0].value, 8) == raw

    def test_a_written_value_hurts_no_later_caller(self, dsl: ModuleType) -> None:
        """The next intern(64) has the value 64, whatever was written, of whatever type."""
        for written in (65, 64.0, True, None, "x"):
            scalar = dsl.Int32.intern(64)
            scalar.value = written
            fresh = dsl.Int32.intern(64)
            assert fresh is not scalar
            assert (type(fresh.value), fresh.value) == (int, 64)

    def test_abstract_classes_and_others_are_refused(self, dsl: ModuleType) -> None:
        """Misuse is told in a sentence, by the method and by the function."""
        for cls in (dsl.Numeric, dsl.Integer, dsl.Float):
            with pytest.raises(scalarintern.NotAScalarClassError, match="abstract"):
                cls.intern(1)
        for what in (int, str, 5, None):
            with pytest.raises(scalarintern.NotAScalarClassError, match="no numeric class"):
                scalarintern.intern(what, 1)


class TestWarnings:
    """Contract 3: every intern of an input warns where its constructor does."""

    def test_each_call_warns_at_the_callers_line(self, dsl: ModuleType) -> None:
        """Same category, text, file and line as the constructor's, every time."""
        inputs = [(dsl.Int32, 2**40 + 7), (dsl.Int8, 300.0), (dsl.Float32, 1e300)]
        inputs += [(dsl.Float16, 1e-30), (dsl.Int32, 3), (dsl.Float32, 0.1)]
        for cls, value in inputs:
            caught = []
            for make in (cls, cls.intern, cls.intern, partial(scalarintern.intern, cls)):
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    make(value)
                caught.append([(w.category, str(w.message), w.filename) for w in seen])
            assert caught == [caught[0]] * 4

    def test_the_line_is_the_callers(self, run_program: Run, release: str) -> None:
        """The very line number is that of the intern call."""
        text = """
            import warnings, scalarintern
            from cutlass.base_dsl.typing import Int32
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                Int32(2**40 + 7)
                Int32.intern(2**40 + 7)
                scalarintern.intern(Int32, 2**40 + 7)
                Int32.intern(2**40 + 7)
            print([(w.filename, w.lineno) for w in seen])
        """

        lines = [line for _, line in eval(run_program(text).stdout)]

        if lines and lines[0] == 6:  # older releases warn from inside, or not at all
            assert lines == [6, 7, 8, 9]
        else:
            assert len(set(lines)) <= 1


class TestPointers:
    """Contract 7 to 10."""

    def test_nobody_needs_to_hold_anything(self, dsl: ModuleType) -> None:
        """Two transient scalars of one value give one pointer, in new lists."""
        assert dsl.Int32(64).__c_pointers__()[0] is dsl.Int32(64).__c_pointers__()[0]
        scalar = dsl.Float32(0.125)
        first, second = scalar.__c_pointers__(), scalar.__c_pointers__()
        assert first == second
        assert first is not second
        assert type(first[0]) is ctypes.c_void_p

    def test_it_is_the_pointer_of_the_current_value(self, dsl: ModuleType) -> None:
        """A written value is marshalled as it is now, or refused as stock refuses it."""
        scalar = dsl.Int32.intern(1)
        scalar.__c_pointers__()
        scalar.value = 2
        assert ctypes.string_at(scalar.__c_pointers__()[0].value, 4) == b"\2\0\0\0"
        scalar.value = 2.0
        with pytest.raises(TypeError):
            scalar.__c_pointers__()
        real = dsl.Float32(1.0)
        real.__c_pointers__()
        real.value = 1
        with pytest.raises(ValueError, match="only float"):
            real.__c_pointers__()

    def test_a_canonical_scalar_looks_fresh(self, dsl: ModuleType) -> None:
        """Nothing is added to the instance, and copies are ordinary ones."""
        scalar = dsl.Int32.intern(64)
        scalar.__c_pointers__()

        assert vars(scalar) == vars(dsl.Int32(64)) == {"value": 64}
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            pickled = pickle.dumps(scalar, protocol)
            assert b"scalarintern" not in pickled
            assert pickle.loads(pickled) is not scalar
        for made in (copy.copy(scalar), copy.deepcopy(scalar), pickle.loads(pickled)):
            assert (type(made), made.value) == (dsl.Int32, 64)
            assert made is not scalar

    def test_a_dropped_subclass_is_collected(self, dsl: ModuleType) -> None:
        """Subclasses are covered when they are made, and keep nothing alive."""

        def make() -> weakref.ref[type]:
            class Mine(dsl.Float32):  # type: ignore[name-defined,misc]
                pass

            class Index(dsl.Int32):  # type: ignore[name-defined,misc]
                pass

            for cls in (Mine, Index):
                assert cls.intern(1) is cls.intern(1)
                assert type(cls.intern(1)) is cls
                assert cls(2).__c_pointers__()[0] is cls(2).__c_pointers__()[0]
            return weakref.ref(Mine)

        references = [make() for _ in range(3)]
        gc.collect()

        assert [reference() for reference in references] == [None] * 3

    def test_a_live_scalar_keeps_one_buffer(self, dsl: ModuleType) -> None:
        """Eviction of all else does not move a held scalar's buffer."""
        scalar = dsl.Float16.intern(0.5)
        address = scalar.__c_pointers__()[0].value
        for n in range(10000):
            dsl.Float16.intern(float(n)).__c_pointers__()
        scalarintern.clear()

        assert scalar.__c_pointers__()[0].value == address

    def test_nothing_is_left_for_the_collector(self, dsl: ModuleType, collector_off: None) -> None:
        """A hit or a miss of any class leaves no cycle, on any release."""
        classes = [dsl.Boolean, dsl.Int8, dsl.Int32, dsl.Uint64, dsl.Float16, dsl.Float32]
        classes += [dsl.TFloat32, dsl.Float64]
        for n in range(600):
            for cls in classes:
                cls(n % 2).__c_pointers__()
                cls.intern(n % 100).__c_pointers__()
                dsl.Int64(n).__c_pointers__()
                dsl.Float32(n * 1e-6).__c_pointers__()

        assert gc.collect() == 0


class TestAudit:
    """What is written through a launch pointer is found, under every value."""

    def test_a_written_buffer_is_found_and_repaired(self, dsl: ModuleType) -> None:
        """audit names class and value, zero among them, and repair puts the bytes back."""
        for cls, value in ((dsl.Int32, 0), (dsl.Uint8, 7), (dsl.Float32, 0.0), (dsl.Float16, 1.5)):
            [pointer] = cls(value).__c_pointers__()
            assert scalarintern.audit() == []
            ctypes.memset(pointer.value, 0x55, 1)

            [finding] = scalarintern.audit(repair=True)

            assert (finding.cls, finding.value) == (cls.__name__, value)
            assert finding.found[0] == 0x55
            assert len(finding.expected) == len(finding.found) == max(1, cls.width // 8)
            assert scalarintern.audit() == []


class TestUndoing:
    """Contract 14."""

    def test_uninstall_leaves_every_member_as_it_was(self, run_program: Run) -> None:
        """Each class and metaclass holds the very objects it held before, after 3 rounds."""
        text = """
            import sys
            sys.path.insert(0, "tests")
            import cutlass
            import scalarintern
            from test_adapter import members
            from cutlass.base_dsl import typing
            before = members(typing)
            for _ in range(3):
                assert scalarintern.install().installed
                pointer = typing.Int32.intern(77).__c_pointers__()[0]
                assert members(typing) != before
                assert scalarintern.uninstall() == []
            after = members(typing)
            assert before.keys() == after.keys()
            assert all(before[name] is after[name] for name in before)
            assert not hasattr(typing.Int32, "intern")
            import ctypes
            assert ctypes.string_at(pointer.value, 4)[0] == 77
            print("same")
        """

        assert "same" in run_program(text, stock=True).stdout

    def test_a_class_made_meanwhile_becomes_ordinary(self, dsl: ModuleType) -> None:
        """A subclass made while installed has no trace of it afterwards."""

        class Mine(dsl.Int32):  # type: ignore[name-defined,misc]
            pass

        name = f"{Mine.__qualname__}.__c_pointers__"
        covered = Mine.__c_pointers__
        assert scalarintern.uninstall() == []

        assert Mine.__c_pointers__ is not covered
        assert not [member for member in vars(Mine) if "scalarintern" in member]
        assert Mine(3).__c_pointers__()[0] is not Mine(3).__c_pointers__()[0], name

    def test_others_on_top_stay(self, dsl: ModuleType) -> None:
        """What was wrapped around ours stays, is named, and works through stock."""
        scalarintern.uninstall()
        original = dsl.Int32.__c_pointers__
        scalarintern.install()
        ours = dsl.Int32.__c_pointers__
        calls = []

        def theirs(self: Any) -> Any:
            calls.append(self)
            return ours(self)

        dsl.Int32.__c_pointers__ = theirs
        try:
            assert dsl.Int32(1).__c_pointers__()[0] is dsl.Int32(1).__c_pointers__()[0]
            assert scalarintern.uninstall() == ["Int32.__c_pointers__"]
            assert dsl.Int32.__c_pointers__ is theirs
            assert dsl.Int32(1).__c_pointers__()[0] is not dsl.Int32(1).__c_pointers__()[0]
            assert len(calls) == 4
        finally:
            dsl.Int32.__c_pointers__ = original

    def test_it_is_idempotent(self, dsl: ModuleType) -> None:
        """Twice installed is once installed; twice uninstalled is no error."""
        assert scalarintern.install() is scalarintern.install()
        scalarintern.uninstall()
        assert scalarintern.uninstall() == []
        assert not scalarintern.is_installed()
        with pytest.raises(scalarintern.NotInstalledError, match="install"):
            scalarintern.intern(dsl.Int32, 1)


class TestLeak:
    """The report: what grows on stock does not grow here."""

    GROWTH = """
        import gc
        import scalarintern.testing
        from cutlass.base_dsl.typing import Float32, Float64, Int32, Int64
        def launch():
            for cls, value in ((Int32, 64), (Int64, 2048), (Float32, 0.125), (Float64, 0.5)):
                cls(value).__c_pointers__()
        scalarintern.testing.assert_no_growth(launch, rounds=50)
        print("no growth")
    """

    def test_nothing_grows(self, run_program: Run) -> None:
        """Launch-like use of constants leaves no object behind, collector off."""
        assert "no growth" in run_program(self.GROWTH).stdout

    def test_stock_grows_on_a_release_that_leaks(self, run_program: Run, leaks: bool) -> None:
        """The same assertion fails on stock where the release leaks, and only there."""
        done = run_program(self.GROWTH, stock=True, check=False)

        assert (done.returncode != 0) == leaks
        if leaks:
            assert "LP_c_" in done.stderr
            assert "import scalarintern" in done.stderr
