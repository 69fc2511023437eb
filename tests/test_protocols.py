"""Canonical scalars under Python's protocols, and classes that users derive."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import gc
import io
import math
import os
import pickle
import struct
import subprocess
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from parity.compare import NO_CACHE

import scalarintern

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
VALUES = {
    "Boolean": (True, False),
    "Int8": (0, -128, 127),
    "Int32": (0, 64, -(2**31)),
    "Uint64": (0, 2**64 - 1),
    "Float16": (0.0, -0.0, 0.1, 65504.0),
    "Float32": (0.0, -0.0, 0.125, math.inf),
    "Float64": (0.1, math.nan, -5e-324),
    "Float8E5M2": (1.5,),
}


@pytest.fixture
def scalars(dsl: ModuleType) -> list[Any]:
    """Give canonical scalars of several classes, some of which have marshalled."""
    found = [getattr(dsl, name).intern(value) for name, of in VALUES.items() for value in of]
    for scalar in found[::2]:
        try:
            scalar.__c_pointers__()
        except ValueError:
            pass
    return found


def bits(scalar: Any) -> Any:
    """Spell a scalar out: its class, the type of its value, and its bits."""
    value = scalar.value
    if type(value) is float:
        return type(scalar), float, struct.pack("<d", value)
    return type(scalar), type(value), value


def same_but_independent(made: Any, scalar: Any) -> None:
    """Check that ``made`` is an ordinary scalar equal to a canonical one."""
    assert bits(made) == bits(scalar)
    assert made is not scalar
    assert vars(made).keys() == vars(type(scalar)(scalar.value)).keys()
    before = bits(scalar)
    made.value = 1 if type(scalar.value) is int else 1.0
    assert bits(scalar) == before


class TestCopies:
    """Whatever is copied or unpickled is an ordinary scalar of the same value."""

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_pickle(self, scalars: list[Any], protocol: int) -> None:
        """A pickle is stock's to the byte, and gives an independent scalar."""
        for scalar in scalars:
            pickled = pickle.dumps(scalar, protocol)
            stock = pickle.dumps(type(scalar)(scalar.value), protocol)
            assert pickled == stock
            assert b"scalarintern" not in pickled
            same_but_independent(pickle.loads(pickled), scalar)

    def test_a_pickle_says_which_objects_are_one(self, dsl: ModuleType) -> None:
        """One object twice in a container is one object twice in its copy."""
        scalar = dsl.Int32.intern(64)
        for make in (lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy):
            first, second = make((scalar, scalar))
            assert first is second
            same_but_independent(first, scalar)

    def test_copy_and_deepcopy(self, scalars: list[Any]) -> None:
        """Both copies are ordinary scalars."""
        for scalar in scalars:
            same_but_independent(copy.copy(scalar), scalar)
            same_but_independent(copy.deepcopy(scalar), scalar)

    def test_nested_containers(self, dsl: ModuleType) -> None:
        """A state of nested containers goes through a pickler with persistent ids and back."""
        scalar = dsl.Float32.intern(0.125)
        group = {"lr": scalar, "betas": (scalar, [scalar])}
        state = {"step": dsl.Int64.intern(7), "groups": [group]}

        class Saver(pickle.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                return None

        file = io.BytesIO()
        Saver(file, 2).dump(state)
        assert b"scalarintern" not in file.getvalue()
        file.seek(0)
        loaded = pickle.load(file)

        [group] = loaded["groups"]
        assert group["lr"] is group["betas"][0] is group["betas"][1][0]
        same_but_independent(group["lr"], scalar)
        assert loaded["step"].value == 7

    def test_dataclasses_replace(self, dsl: ModuleType) -> None:
        """Fields of a dataclass are taken over, compared as objects, and copied by asdict."""

        @dataclasses.dataclass(frozen=True, eq=False)
        class Config:
            count: Any
            scale: Any

        config = Config(dsl.Int32.intern(64), dsl.Float32.intern(0.5))
        other = dataclasses.replace(config, count=dsl.Int32.intern(65))

        assert other.scale is config.scale
        assert other.count is dsl.Int32.intern(65)
        same_but_independent(dataclasses.asdict(config)["count"], config.count)

    def test_an_unpickled_one_marshals_as_any_other(self, scalars: list[Any]) -> None:
        """A copy shares the launch pointer of its value, as does every scalar."""
        for scalar in scalars:
            if scalarintern.dsl_adapter.pointer_table(type(scalar)) is None:
                continue
            copied = pickle.loads(pickle.dumps(scalar))
            assert copied.__c_pointers__()[0] is scalar.__c_pointers__()[0]

    def test_across_processes(self, run_program: Run, tmp_path: Any) -> None:
        """Scalars go to spawned workers and back; there intern gives their canonical ones."""
        script = tmp_path / "across.py"
        script.write_text(
            "import multiprocessing, sys\n"
            "import scalarintern\n"
            "from cutlass.base_dsl.typing import Boolean, Float32, Int32\n"
            "def work(scalar):\n"
            "    canonical = type(scalar).intern(scalar)\n"
            "    assert canonical is not scalar\n"
            "    assert canonical is type(scalar).intern(scalar.value)\n"
            "    assert scalar.__c_pointers__()[0] is canonical.__c_pointers__()[0]\n"
            "    return canonical\n"
            "if __name__ == '__main__':\n"
            "    context = multiprocessing.get_context('spawn')\n"
            "    scalars = [Int32.intern(64), Float32.intern(-0.0), Boolean.intern(True)]\n"
            "    with context.Pool(1) as pool:\n"
            "        for scalar, back in zip(scalars, pool.map(work, scalars)):\n"
            "            assert back is not scalar and repr(back) == repr(scalar)\n"
            "            assert vars(back).keys() == vars(scalar).keys()\n"
            "    print('across')\n"
        )
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, **NO_CACHE, "SCALARINTERN": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.stdout == "across\n", done.stderr


class TestAsObjects:
    """A canonical scalar is an object like any other."""

    def test_nothing_is_added(self, scalars: list[Any]) -> None:
        """vars() of a canonical scalar has the names and values that a fresh one has."""
        for scalar in scalars:
            fresh = type(scalar)(scalar.value)
            assert vars(scalar).keys() == vars(fresh).keys()
            assert repr(vars(scalar)) == repr(vars(fresh))
            assert dir(scalar) == dir(fresh)

    def test_weak_references(self, dsl: ModuleType) -> None:
        """A weak reference lives as long as the scalar is held or retained, and not longer."""
        scalar = dsl.Int32.intern(12345)
        reference, called = weakref.ref(scalar, lambda _: called.append(1)), []
        values = weakref.WeakValueDictionary({"x": scalar})
        scalarintern.clear()
        assert reference() is scalar
        assert values["x"] is scalar
        assert weakref.getweakrefcount(scalar) >= 2
        del scalar
        gc.collect()

        assert reference() is None
        assert called == [1]
        assert not values
        assert dsl.Int32.intern(12345).value == 12345

    def test_as_keys_and_members(self, dsl: ModuleType) -> None:
        """The hash is stock's, and by identity a canonical scalar is found where it is put."""
        scalar, other = dsl.Int32.intern(64), dsl.Float32.intern(64.0)
        assert hash(scalar) == hash(dsl.Int32(64))
        table = {scalar: 1, other: 2}
        assert table[dsl.Int32.intern(64)] == 1
        assert table[dsl.Float32.intern(64.0)] == 2
        assert dsl.Int32.intern(64) in {scalar}
        assert [scalar].index(dsl.Int32.intern(64)) == 0

    def test_a_written_attribute_hurts_nobody(self, dsl: ModuleType) -> None:
        """What a user sets on a canonical scalar stays there, and the value is still shared."""
        scalar = dsl.Int32.intern(64)
        scalar.note = "mine"
        try:
            assert dsl.Int32.intern(64).value == 64
            assert not hasattr(dsl.Int32(64), "note")
        finally:
            del scalar.note


class TestSubclasses:
    """Classes that users derive from numeric ones."""

    def test_an_init_of_its_own(self, dsl: ModuleType) -> None:
        """The class's constructor is called for each intern, and its value is the key."""
        calls = []

        class Scaled(dsl.Float32):  # type: ignore[name-defined,misc]
            def __init__(self, x: Any, scale: float = 2.0) -> None:
                calls.append(x)
                super().__init__(x * scale)
                self.scale = scale

        scalar = Scaled.intern(1.5)
        assert scalar is Scaled.intern(1.5)
        assert (type(scalar), scalar.value, scalar.scale) == (Scaled, 3.0, 2.0)
        assert calls == [1.5, 1.5]
        assert scalar.__c_pointers__()[0] is Scaled(1.5, 2.0).__c_pointers__()[0]
        assert ctypes.string_at(scalar.__c_pointers__()[0].value, 4) == struct.pack("<f", 3.0)
        assert Scaled.intern(0.0) is not Scaled.intern(-0.0)

    def test_an_init_that_refuses(self, dsl: ModuleType) -> None:
        """An error of the constructor comes out of intern, each time."""

        class Even(dsl.Int32):  # type: ignore[name-defined,misc]
            def __init__(self, x: Any) -> None:
                if x % 2:
                    raise ValueError(f"{x} is odd")
                super().__init__(x)

        for _ in range(2):
            with pytest.raises(ValueError, match="3 is odd"):
                Even.intern(3)
            assert Even.intern(4).value == 4

    def test_extra_attributes_and_slots(self, dsl: ModuleType) -> None:
        """Attributes and slots that a class adds are its own affair."""

        class Tagged(dsl.Int32):  # type: ignore[name-defined,misc]
            tag = "class"

        class Slotted(dsl.Int64):  # type: ignore[name-defined,misc]
            __slots__ = ("extra", "more")

        class Bare(dsl.Float32):  # type: ignore[name-defined,misc]
            __slots__ = ()

        for cls in (Tagged, Slotted, Bare):
            scalar = cls.intern(5)
            assert cls.intern(5) is scalar
            assert type(scalar) is cls
            assert scalar is not cls.__mro__[1].intern(5)
            assert scalar.__c_pointers__()[0] is cls(5).__c_pointers__()[0]
        Slotted.intern(5).extra = 1
        Tagged.intern(5).tag = "instance"
        assert (Tagged.tag, Tagged(5).tag) == ("class", "class")
        assert not hasattr(Slotted(5), "extra")

    def test_a_c_pointers_of_its_own(self, dsl: ModuleType) -> None:
        """A class that marshals by itself is asked each time; nothing is shared for it."""
        calls = []

        class Doubled(dsl.Float32):  # type: ignore[name-defined,misc]
            def __c_pointers__(self) -> Any:
                calls.append(self.value)
                return [*super().__c_pointers__(), *super().__c_pointers__()]

        scalar = Doubled.intern(1.5)
        first, second = scalar.__c_pointers__()
        assert first is second is dsl.Float32(1.5).__c_pointers__()[0]
        scalar.__c_pointers__()
        assert calls == [1.5, 1.5]

    def test_a_value_that_is_computed(self, dsl: ModuleType) -> None:
        """A value that is a property is read for each pointer."""

        class Ticking(dsl.Int32):  # type: ignore[name-defined,misc]
            @property
            def value(self) -> int:
                self.__dict__["reads"] = self.__dict__.get("reads", 0) + 1
                return self.__dict__["held"] + self.__dict__["reads"]

            @value.setter
            def value(self, value: int) -> None:
                self.__dict__["held"] = value

        scalar = Ticking(100)
        read = [ctypes.string_at(scalar.__c_pointers__()[0].value, 4) for _ in range(3)]
        assert len(set(read)) == 3

    def test_metaclasses_of_its_own(self, dsl: ModuleType) -> None:
        """A metaclass derived from the DSL's is covered as it is, even with an intern member."""

        class CountingMeta(dsl.IntegerMeta):  # type: ignore[name-defined,misc]
            made = 0

            def __call__(cls, *args: Any, **kwargs: Any) -> Any:
                CountingMeta.made += 1
                return super().__call__(*args, **kwargs)

        class Counted(dsl.Int32, metaclass=CountingMeta):  # type: ignore[name-defined,misc]
            pass

        class InternMeta(dsl.FloatMeta):  # type: ignore[name-defined,misc]
            def intern(cls, value: Any) -> str:
                return f"theirs: {value}"

        class Theirs(dsl.Float32, metaclass=InternMeta):  # type: ignore[name-defined,misc]
            pass

        assert Counted.intern(5) is Counted.intern(5)
        assert CountingMeta.made == 2
        assert Counted(5).__c_pointers__()[0] is Counted(5).__c_pointers__()[0]
        assert Theirs.intern(5) == "theirs: 5"
        assert Theirs(5.0).__c_pointers__()[0] is Theirs(5.0).__c_pointers__()[0]

    def test_a_class_made_by_keyword_arguments(self, dsl: ModuleType) -> None:
        """A class of another width, made by the metaclass's keywords, has its own bytes."""

        class Narrow(
            dsl.Integer,  # type: ignore[name-defined,misc]
            metaclass=dsl.IntegerMeta,
            width=16,
            signed=False,
            mlir_type=dsl.T.i16,
        ):
            pass

        scalar = Narrow.intern(-1)
        assert scalar is Narrow.intern(65535)
        assert ctypes.string_at(scalar.__c_pointers__()[0].value, 2) == b"\xff\xff"

    def test_a_base_written_after_the_class(self, dsl: ModuleType) -> None:
        """A __c_pointers__ that its owner sets later is used, and taken off it is ours again."""

        class Mine(dsl.Int32):  # type: ignore[name-defined,misc]
            pass

        ours = Mine.__c_pointers__
        Mine.__c_pointers__ = lambda self: ["theirs"]
        assert Mine(1).__c_pointers__() == Mine.intern(1).__c_pointers__() == ["theirs"]
        Mine.__c_pointers__ = ours
        assert Mine(1).__c_pointers__()[0] is Mine.intern(1).__c_pointers__()[0]

    @pytest.mark.parametrize("base", ["Int32", "Float32", "Boolean", "Float8E5M2"])
    def test_dropped_classes_are_collected(self, dsl: ModuleType, base: str) -> None:
        """Classes made in a loop, used and dropped, leave neither themselves nor their tables."""
        parent = getattr(dsl, base)

        def make(n: int) -> weakref.ref[type]:
            cls = types.new_class(f"Dropped{n}", (parent,), {"metaclass": type(parent)})
            for value in (0, 1):
                assert cls.intern(value) is cls.intern(value)
                try:
                    cls(value).__c_pointers__()
                except ValueError:
                    pass
            return weakref.ref(cls)

        gc.collect()
        tables = len(scalarintern.dsl_adapter.registry.tables())
        references = [make(n) for n in range(50)]
        gc.collect()

        assert [one for one in references if one() is not None] == []
        assert len(scalarintern.dsl_adapter.registry.tables()) == tables
        names = [cls.__name__ for cls in type.__subclasses__(parent)]
        assert not [name for name in names if name.startswith("Dropped")]


@pytest.fixture(autouse=True)
def nothing_unraisable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test in which something was raised where nobody could catch it."""
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    yield
    assert not seen
