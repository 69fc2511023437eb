"""Others patch the DSL too, reload it, break it or bring another: the program works on."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cli_support import run_without_dsl
from parity.compare import NO_CACHE

Run = Callable[..., "subprocess.CompletedProcess[str]"]

#: Takes its time: only with SCALARINTERN_SLOW=1.
slow = pytest.mark.skipif(
    not os.environ.get("SCALARINTERN_SLOW"), reason="slow: runs with SCALARINTERN_SLOW=1"
)

#: Begins a program: what every class and metaclass holds, the very objects, and how they are told.
MEMBERS = """
import ctypes, sys, warnings
import scalarintern

def members(typing):
    pending = [typing.Numeric, typing.DslType, typing.NumericMeta, typing.IntegerMeta]
    pending += [typing.FloatMeta, typing.ir.Context]
    found = {}
    while pending:
        cls = pending.pop()
        for name, value in vars(cls).items():
            found[id(cls), cls.__qualname__, name] = value
        if isinstance(cls, typing.NumericMeta):
            pending += type.__subclasses__(cls)
    return found

def differing(before, after):
    absent = object()
    return sorted(
        f"{key[1]}.{key[2]}" for key in before.keys() | after.keys()
        if before.get(key, absent) is not after.get(key, absent)
    )

def data(scalar, length=4):
    [pointer] = scalar.__c_pointers__()
    assert type(pointer) is ctypes.c_void_p
    return ctypes.string_at(pointer.value, length)

def shared(cls, value):
    return cls(value).__c_pointers__()[0] is cls(value).__c_pointers__()[0]
"""


@pytest.fixture
def program(run_program: Run, tmp_path: Path) -> Callable[..., str]:
    """Give a function that runs a program after MEMBERS and returns what it printed."""

    def run(text: str, **keywords: Any) -> str:
        script = tmp_path / "program.py"
        script.write_text(MEMBERS + textwrap.dedent(text))
        path = str(script)
        text = f"import runpy; runpy.run_path({path!r}, run_name='__main__')"
        done = run_program(text, **NO_CACHE, **keywords)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    return run


class TestOthersPatch:
    """Another library wraps what we wrap."""

    def test_before_us(self, program: Callable[..., str]) -> None:
        """What others put over the release's method before us stays, is called, and is named."""
        said = program(
            """
            import functools
            from cutlass.base_dsl import typing
            calls = []
            def wrap(cls):
                original = cls.__c_pointers__
                @functools.wraps(original)
                def theirs(self):
                    calls.append(cls.__name__)
                    return original(self)
                cls.__c_pointers__ = theirs
                return theirs
            theirs = {cls: wrap(cls) for cls in (typing.Int32, typing.Float32)}
            new = typing.IntegerMeta.__new__
            def __new__(meta, name, bases, attrs, **kwargs):
                calls.append(name)
                return new(meta, name, bases, attrs, **kwargs)
            typing.IntegerMeta.__new__ = __new__
            typing.NumericMeta.__init__ = lambda cls, *args, **kwargs: calls.append("init")
            before = members(typing)

            done = scalarintern.install()
            assert done.installed
            for cls in theirs:
                assert "replaced" in done.left_alone[f"{cls.__name__}.__c_pointers__"]
                assert cls.__c_pointers__ is theirs[cls]
            calls.clear()
            assert data(typing.Int32(64)) == data(typing.Int32.intern(64)) == b"\\x40\\0\\0\\0"
            assert calls == ["Int32", "Int32"]
            assert typing.Int32.intern(64) is typing.Int32.intern(64)
            assert shared(typing.Int64, 64) and shared(typing.Float64, 0.5)
            class Mine(typing.Int16):
                pass
            assert calls[2:] == ["Mine", "init"]
            assert shared(Mine, 5) and Mine.intern(5) is Mine.intern(5)
            del Mine
            import gc; gc.collect()
            assert scalarintern.uninstall() == []
            assert differing(before, members(typing)) == []
            print("good")
            """,
            stock=True,
        )

        assert said == "good\n"

    def test_after_us(self, program: Callable[..., str]) -> None:
        """What others put over ours is theirs when we go, is named, and works as stock does."""
        said = program(
            """
            import wrapt
            from cutlass.base_dsl import typing
            before = members(typing)
            assert scalarintern.install().installed
            calls = []
            def wrapper(wrapped, instance, args, kwargs):
                calls.append(wrapped.__name__)
                return wrapped(*args, **kwargs)
            wrapt.wrap_function_wrapper(typing.Int32, "__c_pointers__", wrapper)
            ours = vars(typing.NumericMeta)["__init__"]
            def __init__(cls, *args, **kwargs):
                calls.append("init")
                ours(cls, *args, **kwargs)
            typing.NumericMeta.__init__ = __init__
            interning = vars(typing.FloatMeta)["intern"]
            typing.FloatMeta.intern = lambda cls, value: interning(cls, value)

            assert typing.Float32.intern(0.5) is typing.Float32.intern(0.5)
            assert shared(typing.Int32, 64) and calls == ["__c_pointers__"] * 2
            theirs = ["FloatMeta.intern", "Int32.__c_pointers__", "NumericMeta.__init__"]
            left = sorted(scalarintern.uninstall())
            assert left == theirs, left
            assert differing(before, members(typing)) == left
            assert not shared(typing.Int32, 64) and not shared(typing.Int64, 64)
            assert data(typing.Int32(64)) == b"\\x40\\0\\0\\0"
            class Mine(typing.Int32):
                pass
            assert calls[-1] == "init" and not shared(Mine, 5)
            fresh = typing.Float32.intern(0.5)
            assert (type(fresh), fresh.value) == (typing.Float32, 0.5)
            assert fresh is not typing.Float32.intern(0.5)
            print("good")
            """,
            stock=True,
        )

        assert said == "good\n"

    def test_not_last_in_first_out(self, program: Callable[..., str]) -> None:
        """Theirs on and off around ours in any order: the last of it leaves no trace of us."""
        said = program(
            """
            from cutlass.base_dsl import typing
            def wrap(cls, name="__c_pointers__"):
                original = vars(cls)[name]
                def theirs(self):
                    return original(self)
                setattr(cls, name, theirs)
                return lambda: setattr(cls, name, original)
            before = members(typing)
            for _ in range(3):
                # theirs, ours, theirs off, ours off
                unwrap = wrap(typing.Int32)
                scalarintern.install()
                assert data(typing.Int32(5)) == b"\\5\\0\\0\\0"
                unwrap()
                assert data(typing.Int32(5)) == b"\\5\\0\\0\\0"
                scalarintern.uninstall()
                assert differing(before, members(typing)) == []
                # ours, theirs, theirs off, ours off
                scalarintern.install()
                unwrap = wrap(typing.Float32)
                assert shared(typing.Float32, 0.5)
                unwrap()
                assert scalarintern.uninstall() == []
                assert differing(before, members(typing)) == []
                # ours, theirs restores what it saw before ours, ours off
                scalarintern.install()
                typing.Int64.__c_pointers__ = before[id(typing.Int64), "Int64", "__c_pointers__"]
                assert not shared(typing.Int64, 5)
                assert data(typing.Int64(5), 8) == bytes([5] + [0] * 7)
                scalarintern.uninstall()
                assert differing(before, members(typing)) == []
            # ours, theirs, ours off, theirs off: theirs puts back a retired method of ours
            scalarintern.install()
            pointer = typing.Int32(64).__c_pointers__()[0]
            unwrap = wrap(typing.Int32)
            assert scalarintern.uninstall() == ["Int32.__c_pointers__"]
            unwrap()
            assert differing(before, members(typing)) == ["Int32.__c_pointers__"]
            assert data(typing.Int32(64)) == b"\\x40\\0\\0\\0" and not shared(typing.Int32, 64)
            assert ctypes.string_at(pointer.value, 4) == b"\\x40\\0\\0\\0"
            done = scalarintern.install()
            assert done.installed and data(typing.Int32.intern(64)) == b"\\x40\\0\\0\\0"
            assert shared(typing.Int64, 64)
            print("good")
            """,
            stock=True,
        )

        assert said == "good\n"

    def test_an_intern_of_others(self, program: Callable[..., str]) -> None:
        """A metaclass that has an intern already is told apart as a layout not known."""
        said = program(
            """
            from cutlass.base_dsl import typing
            theirs = lambda cls, value: "theirs"
            typing.IntegerMeta.intern = theirs
            before = members(typing)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                done = scalarintern.install()
                scalarintern.install()
            assert not done.installed and "IntegerMeta has an intern" in done.reason
            [warning] = seen
            assert warning.category is scalarintern.UnknownLayoutWarning
            assert differing(before, members(typing)) == []
            assert typing.Int32.intern(5) == "theirs"
            print("good")
            """,
            stock=True,
        )

        assert said == "good\n"

    def test_every_member_comes_back(self, program: Callable[..., str]) -> None:
        """Three rounds leave the very objects in every class, metaclass and ir.Context."""
        said = program(
            """
            import cutlass
            import cutlass.cute as cute
            from cutlass.base_dsl import typing
            class Mine(typing.Int32):
                pass
            before = members(typing)
            executors = {}
            def others():
                found = {}
                for name, module in list(sys.modules.items()):
                    if name.split(".")[0] == "cutlass" and module is not None:
                        for key, value in list(vars(module).items()):
                            found[0, name, key] = value
                            if isinstance(value, type) and value.__module__ == name:
                                for member, thing in vars(value).items():
                                    found[id(value), f"{name}.{key}", member] = thing
                return found
            others()
            around = others()
            for _ in range(3):
                assert scalarintern.install().installed
                for cls in (typing.Int32, typing.Float32, typing.Boolean, Mine):
                    cls.intern(1).__c_pointers__()
                assert differing(before, members(typing)) != []
                assert scalarintern.uninstall() == []
                assert differing(before, members(typing)) == []
                changed = [
                    name for name in differing(around, others())
                    if "slotnames" not in name and "_abc_impl" not in name
                ]
                assert changed == [], changed
            print("good")
            """,
            stock=True,
        )

        assert said == "good\n"


class TestOtherImports:
    """The DSL is loaded twice, half, or not at all."""

    def test_reload(self, program: Callable[..., str]) -> None:
        """Reloaded classes are stock's until install() is called again; the old ones still work."""
        said = program(
            """
            import importlib
            import cutlass
            from cutlass.base_dsl import typing
            assert scalarintern.is_installed()
            old = typing.Int32
            held = old.intern(64)
            pointer = held.__c_pointers__()[0]
            importlib.reload(typing)
            assert typing.Int32 is not old
            state = scalarintern.is_installed()
            assert data(typing.Int32(65)) == b"\\x41\\0\\0\\0"
            assert state == hasattr(typing.Int32, "intern")
            assert data(old(66)) == b"\\x42\\0\\0\\0" and held.__c_pointers__()[0] is pointer
            assert scalarintern.install().installed and scalarintern.is_installed()
            assert typing.Int32.intern(64) is typing.Int32.intern(64) is not held
            assert shared(typing.Int32, 5) and shared(typing.Float32, 0.5)
            assert data(old.intern(67)) == b"\\x43\\0\\0\\0"
            scalarintern.uninstall()
            assert not hasattr(typing.Int32, "intern") and not hasattr(old, "intern")
            assert not shared(typing.Int32, 5) and not shared(old, 5)
            assert ctypes.string_at(pointer.value, 4) == b"\\x40\\0\\0\\0"
            print("good")
            """
        )

        assert said == "good\n"

    @slow
    def test_the_module_imported_a_second_time(self, program: Callable[..., str]) -> None:
        """A second copy of the module beside the first: both marshal right, and both come back."""
        said = program(
            """
            import importlib
            import cutlass
            from cutlass.base_dsl import typing as first
            stock = vars(first.Int32)["__c_pointers__"]
            held = first.Int32.intern(64)
            del sys.modules["cutlass.base_dsl.typing"]
            second = importlib.import_module("cutlass.base_dsl.typing")
            assert second is not first
            scalarintern.install()
            assert scalarintern.is_installed()
            for typing in (first, second):
                assert data(typing.Int32(64)) == data(typing.Int32.intern(64)) == b"\\x40\\0\\0\\0"
                assert typing.Float32.intern(0.5) is typing.Float32.intern(0.5)
                assert shared(typing.Int64, 64)
            assert first.Int32.intern(64) is held is not second.Int32.intern(64)
            assert scalarintern.uninstall() == []
            for typing in (first, second):
                assert not hasattr(typing.Int32, "intern") and not shared(typing.Int32, 64)
                assert data(typing.Int32(64)) == b"\\x40\\0\\0\\0"
            print("good")
            """
        )

        assert said == "good\n"

    @slow
    def test_two_copies_on_the_path(
        self, program: Callable[..., str], tmp_path: Path, dsl: ModuleType
    ) -> None:
        """Of two copies on sys.path, the one that Python imports is the one that is named."""
        package = Path(dsl.__file__ or "").parent.parent
        copy = tmp_path / "second copy"
        copy.mkdir()
        (copy / "cutlass").symlink_to(package, target_is_directory=True)

        said = program(
            f"""
            sys.path.insert(0, {str(copy)!r})
            import cutlass
            from cutlass.base_dsl import typing
            done = scalarintern.install()
            assert done.installed and done.location.startswith({str(copy)!r}), done.location
            assert typing.Int32.intern(64) is typing.Int32.intern(64)
            assert shared(typing.Float32, 0.5) and data(typing.Int32(64)) == b"\\x40\\0\\0\\0"
            print("good")
            """
        )

        assert said == "good\n"

    @pytest.mark.parametrize(
        "broken",
        [
            "cutlass.base_dsl.jit_executor",
            pytest.param("cutlass._mlir.dialects.arith", marks=slow),
        ],
    )
    def test_an_import_that_fails_half_way(self, program: Callable[..., str], broken: str) -> None:
        """The error is the import's own; the next import goes through and is interned."""
        said = program(
            f"""
            class Breaks:
                left = 1
                def find_spec(self, name, path=None, target=None):
                    if name == {broken!r} and self.left:
                        self.left -= 1
                        raise ImportError("broken on purpose")
            breaks = Breaks()
            sys.meta_path.insert(0, breaks)
            try:
                import cutlass.cute
            except ImportError as error:
                assert "broken on purpose" in str(error), error
                print("broke")
            assert not breaks.left
            scalarintern.stats()
            try:
                import cutlass.cute
            except Exception as error:
                # A release may not stand a second import: as in stock.
                print("stock cannot:", type(error).__name__, file=sys.stderr)
                for name in [name for name in sys.modules if name.split(".")[0] == "cutlass"]:
                    if not name.startswith("cutlass._mlir"):
                        del sys.modules[name]
                import cutlass.cute
            from cutlass.base_dsl import typing
            assert scalarintern.is_installed()
            assert typing.Int32.intern(64) is typing.Int32.intern(64)
            assert shared(typing.Float32, 0.5) and data(typing.Int32(64)) == b"\\x40\\0\\0\\0"
            print("good")
            """
        )

        assert said == "broke\ngood\n"


class TestNoDSL:
    """There is no DSL, or something else of its name."""

    def test_missing(self) -> None:
        """Without the DSL everything says so, and nothing fails."""
        said = run_without_dsl(
            """
            import scalarintern, sys
            try:
                import cutlass
            except ImportError:
                pass
            else:
                raise SystemExit(f"a cutlass is there: {cutlass}")
            done = scalarintern.install()
            assert not done.installed and "not imported" in done.reason
            assert not scalarintern.is_installed()
            assert scalarintern.uninstall() == [] and scalarintern.audit() == []
            assert scalarintern.stats().live == 0
            scalarintern.clear()
            try:
                scalarintern.intern(int, 5)
            except scalarintern.NotAScalarClassError as error:
                print(error)
            """
        )

        assert "no numeric class" in said

    def test_an_unrelated_package_of_that_name(self, tmp_path: Path) -> None:
        """Another package named cutlass is left alone without a word."""
        (tmp_path / "cutlass").mkdir()
        (tmp_path / "cutlass" / "__init__.py").write_text("__version__ = '3'\nInt32 = int\n")
        said = run_without_dsl(
            """
            import scalarintern, cutlass
            assert cutlass.Int32(5) == 5
            assert not scalarintern.install().installed and not scalarintern.is_installed()
            import cutlass, importlib
            importlib.reload(cutlass)
            print("good")
            """,
            tmp_path,
            options=("-W", "error"),
        )

        assert said == "good\n"


FAKE = """
import ctypes

class ir:
    class Context:
        current = None
        def __enter__(self): return self
        def __exit__(self, *exc_info): return None
    class InsertionPoint:
        current = None

class DslType(type): pass

class NumericMeta(DslType):
    def __new__(meta, name, bases, attrs, **kwargs):
        cls = super().__new__(meta, name, bases, attrs)
        cls._is_abstract = kwargs.get("is_abstract", False)
        return cls
    def __init__(cls, *args, **kwargs): pass

class IntegerMeta(NumericMeta): pass
class FloatMeta(NumericMeta): pass

class Numeric(metaclass=NumericMeta, is_abstract=True):
    def __init__(self, value): self.value = value

class Integer(Numeric, metaclass=IntegerMeta, is_abstract=True): pass
class Float(Numeric, metaclass=FloatMeta, is_abstract=True): pass

def owning(data):
    pointer = ctypes.c_void_p(ctypes.addressof(data))
    pointer.keep = data
    return pointer

class Int32(Integer, metaclass=IntegerMeta):
    def __c_pointers__(self): return [owning(ctypes.c_int32(self.value))]

class Float32(Float, metaclass=FloatMeta):
    def __c_pointers__(self): return [owning(ctypes.c_float(self.value))]

class Boolean(Integer, metaclass=IntegerMeta):
    def __c_pointers__(self): return [owning(ctypes.c_bool(self.value))]
"""
#: Name of a change to FAKE: what is replaced, by what.
CHANGES = {
    "no FloatMeta": ("FloatMeta", "RealMeta"),
    "no Numeric": ("Numeric", "Number"),
    "no Int32": ("Int32", "Integer32"),
    "no ir": ("class ir:", "class mlir:"),
    "no Context.current": ("current = None", "active = None"),
    "metaclass of another family": (
        "[owning(ctypes.c_bool(self.value))]",
        "[owning(ctypes.c_bool(self.value))]\n\nclass IntegerMeta(DslType): pass",
    ),
    "two pointers": ("[owning(ctypes.c_int32(self.value))]", "[owning(ctypes.c_int32(1))] * 2"),
    "addresses": ("[owning(ctypes.c_int32(self.value))]", "[ctypes.addressof(ctypes.c_int32(1))]"),
    "another pointer type": ("ctypes.c_void_p(", "ctypes.c_size_t("),
    "big-endian": ("owning(ctypes.c_int32(self", "owning(ctypes.c_int32.__ctype_be__(self"),
    "another name of the value": ("self.value", "self.payload"),
    "nothing owns": ("pointer.keep = data", "KEPT.append(data)"),
    "marshalling raises": ("[owning(ctypes.c_float(self.value))]", "1 / 0"),
    "a property": (
        "    def __c_pointers__(self): return [owning(ctypes.c_int32(self.value))]",
        "    __c_pointers__ = property(lambda self: None)",
    ),
}


def fake_release(folder: Path, change: str | None) -> Path:
    """Write a small DSL of the known layout, or with one change, and give its folder."""
    text = "KEPT = []\n" + FAKE
    if change is not None:
        old, new = CHANGES[change]
        assert old in text
        text = text.replace(old, new)
    package = folder / (change or "known").replace(" ", "_")
    (package / "cutlass" / "base_dsl").mkdir(parents=True)
    (package / "cutlass" / "__init__.py").write_text("__version__ = '99.1.0'\n")
    (package / "cutlass" / "base_dsl" / "__init__.py").write_text("")
    (package / "cutlass" / "base_dsl" / "typing.py").write_text(text)
    return package


class TestUnknownLayout:
    """A release that is laid out in another way: one warning, and nothing changed."""

    PROGRAM = """
    import importlib, sys, warnings
    def members(module):
        classes = [c for c in vars(module).values() if isinstance(c, type)]
        classes += [c for o in classes for c in vars(o).values() if isinstance(c, type)]
        return {(c.__qualname__, n): v for c in classes for n, v in vars(c).items()}
    import scalarintern
    before = {}
    class Notes:
        # Takes down the members when the module is ready, before anybody's hook.
        def find_spec(self, name, path=None, target=None):
            if name != "cutlass.base_dsl.typing" or before:
                return None
            before["searching"] = True
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module
            def exec_module(module):
                execute(module)
                before.update(members(module))
            spec.loader.exec_module = exec_module
            return spec
    import importlib.util
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        import cutlass.base_dsl.typing as typing
        plain = members(typing)
        done = scalarintern.install()
        again = scalarintern.install()
    print(len(seen), done.installed, again.installed, scalarintern.is_installed())
    for warning in seen:
        print(warning.category.__name__, warning.message)
    print([name for name in plain if "intern" in name[1]], hasattr(typing, "intern"))
    print("reason:", done.reason)
    assert scalarintern.uninstall() == []
    after = members(typing)
    assert plain.keys() == after.keys()
    assert all(plain[name] is after[name] for name in plain)
    functions = [
        value for value in after.values()
        if getattr(getattr(value, "__code__", None), "co_filename", typing.__file__)
        != typing.__file__
    ]
    assert not functions, functions
    """

    def test_the_fake_of_the_known_layout_is_installed(self, tmp_path: Path) -> None:
        """Without a change the small DSL is patched: it is the changes that matter below."""
        said = run_without_dsl(
            """
            import scalarintern, warnings
            warnings.simplefilter("error")
            import cutlass.base_dsl.typing as typing
            assert scalarintern.is_installed()
            assert typing.Int32.intern(64) is typing.Int32.intern(64)
            assert typing.Int32(1).__c_pointers__()[0] is typing.Int32(1).__c_pointers__()[0]
            print("good")
            """,
            fake_release(tmp_path, None),
        )

        assert said == "good\n"

    @pytest.mark.parametrize("change", CHANGES)
    def test_one_warning_and_nothing_changed(self, tmp_path: Path, change: str) -> None:
        """The warning has both versions, the reason and the address for issues."""
        said = run_without_dsl(self.PROGRAM, fake_release(tmp_path, change)).splitlines()

        assert said[0] == "1 False False False", said
        assert said[1].startswith("UnknownLayoutWarning scalarintern ")
        for part in (" 99.1.0 ", "https://", "nothing was changed"):
            assert part in said[1]
        assert said[2] == "[] False"
        assert said[3] != "reason: "
