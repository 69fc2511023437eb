"""Environment variables, import orders and interpreter options: the same scalars under each."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from parity.compare import NO_CACHE

import scalarintern

Run = Callable[..., "subprocess.CompletedProcess[str]"]

#: Takes its time: only with SCALARINTERN_SLOW=1.
slow = pytest.mark.skipif(
    not os.environ.get("SCALARINTERN_SLOW"), reason="slow: runs with SCALARINTERN_SLOW=1"
)

#: Prints what scalars of every class do; says "interned" or "stock" at the end. No assert in it:
#: it runs with -O too.
WORK = """
import copy, ctypes, gc, hashlib, pickle, sys, warnings

def require(truth, what):
    if not truth:
        raise SystemExit(f"not so: {what}")

def work():
    import scalarintern
    from cutlass.base_dsl import typing
    interned = scalarintern.is_installed()
    require(interned == hasattr(typing.Int32, "intern"), "intern is there when installed")
    digest = hashlib.sha256()
    pending, classes = [typing.Numeric], []
    while pending:
        cls = pending.pop(0)
        classes += [] if cls._is_abstract else [cls]
        pending += type.__subclasses__(cls)
    warnings.simplefilter("always")
    for cls in classes:
        for value in (0, 1, -1, 300, 0.0, -0.0, 0.1, 65520.0, 1e300, float("inf"), "x", None):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                try:
                    scalar = cls.intern(value) if interned else cls(value)
                except Exception as error:
                    said = f"{type(error).__name__}: {error}"
                else:
                    said = f"{scalar!r} {pickle.dumps(scalar, 2)!r}"
                    try:
                        [pointer] = scalar.__c_pointers__()
                    except Exception as error:
                        said += f"{type(error).__name__}: {error}"
                    else:
                        size = max(1, cls.width // 8)
                        said += ctypes.string_at(pointer.value, size).hex()
                    if interned:
                        require(cls.intern(value) is scalar, "one object")
                said += str([str(warning.category) for warning in seen][:1])
            digest.update(f"{cls.__name__} {value!r} {said}".encode())
    if interned:
        require(scalarintern.audit() == [], "buffers are whole")
        pointers = [typing.Int32(64).__c_pointers__()[0] for _ in range(2)]
        require(pointers[0] is pointers[1], "shared")
        for n in range(3000):
            typing.Int64.intern(n).__c_pointers__()
        require(scalarintern.stats().retained <= 4096, "bounded")
    gc.collect()
    print(digest.hexdigest())
    print("interned" if interned else "stock")
"""


@pytest.fixture(scope="module")
def stock_digest() -> str:
    """Give what WORK prints first in stock."""
    pytest.importorskip("cutlass.base_dsl.typing", reason="the DSL is not installed")
    done = subprocess.run(
        [sys.executable, "-c", WORK + "work()"],
        env={**os.environ, **NO_CACHE, "SCALARINTERN": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    digest, side = done.stdout.split()
    assert side == "stock"
    return digest


def run(
    text: str, *, options: tuple[str, ...] = (), check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run WORK and a program in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, *options, "-c", WORK + textwrap.dedent(text)],
        env={**os.environ, **NO_CACHE, "SCALARINTERN": "1", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if check:
        assert done.returncode == 0, done.stderr[-4000:]
        for trouble in ("Exception ignored", "Fatal", "scalarintern/"):
            assert trouble not in done.stderr, done.stderr[-4000:]
    return done


class TestEnvironment:
    """The variables that switch the adapter."""

    def test_off(self, stock_digest: str) -> None:
        """SCALARINTERN=0 leaves the DSL as it is, until install() is called by hand."""
        said = run(
            """
            import scalarintern
            from cutlass.base_dsl import typing
            require(not hasattr(typing.Int32, "intern"), "nothing is patched")
            require(not hasattr(typing.ir.Context.__enter__, "__code__") or "scalarintern"
                    not in typing.ir.Context.__enter__.__code__.co_filename, "nor is the context")
            require(not scalarintern.is_installed(), "not installed")
            require(scalarintern.stats().live == scalarintern.stats().misses == 0, "nothing made")
            work()
            require(scalarintern.install().installed, "by hand")
            work()
            """,
            SCALARINTERN="0",
        )
        assert said.stdout.split() == [stock_digest, "stock", stock_digest, "interned"]

    @slow
    def test_the_short_way_off(self, stock_digest: str) -> None:
        """SCALARINTERN_LAUNCH=0 interns, says that launches are left alone, and why."""
        said = run(
            """
            import scalarintern
            work()
            done = scalarintern.install()
            require(done.installed and not done.launch, "launches as in stock")
            require(done.launch_reason, "and why")
            """,
            SCALARINTERN_LAUNCH="0",
        )
        assert said.stdout.split() == [stock_digest, "interned"]


class TestImportOrder:
    """Wherever the import stands, scalars are interned once both are there."""

    def test_before(self, stock_digest: str) -> None:
        """Imported first, it waits for the DSL and does not import it."""
        said = run(
            """
            import scalarintern
            require("cutlass" not in sys.modules, "the DSL is not imported")
            require("not imported" in scalarintern.install().reason, "it says so")
            import cutlass.cute
            require(scalarintern.is_installed(), "installed by the import")
            work()
            """
        )
        assert said.stdout.split() == [stock_digest, "interned"]

    def test_after(self, stock_digest: str) -> None:
        """Imported last, it applies at once, to scalars and classes made before as well."""
        said = run(
            """
            import cutlass.cute
            from cutlass.base_dsl import typing
            class Mine(typing.Int32):
                pass
            early = typing.Int32(64)
            before = early.__c_pointers__()[0]
            import scalarintern
            require(scalarintern.is_installed(), "installed")
            pointer = typing.Int32.intern(64).__c_pointers__()[0]
            require(early.__c_pointers__()[0] is pointer, "shared")
            require(ctypes.string_at(before.value, 4)[0] == 64, "old pointers stay good")
            require(Mine.intern(5) is Mine.intern(5), "old classes are covered")
            require(Mine(5).__c_pointers__()[0] is Mine(5).__c_pointers__()[0], "and marshal")
            del Mine
            gc.collect()
            work()
            """
        )
        assert said.stdout.split() == [stock_digest, "interned"]

    @pytest.mark.parametrize(
        "seen",
        [
            pytest.param("cutlass", marks=slow),
            pytest.param("cutlass.base_dsl", marks=slow),
            "cutlass.base_dsl.typing",
        ],
    )
    def test_during(self, stock_digest: str, seen: str) -> None:
        """Imported while another thread is importing the DSL, it applies when that is done."""
        said = run(
            f"""
            import threading, time
            failed = []
            def load():
                try:
                    import cutlass.cute
                except BaseException as error:
                    failed.append(error)
                    raise
            thread = threading.Thread(target=load)
            thread.start()
            while {seen!r} not in sys.modules and thread.is_alive():
                time.sleep(0)
            import scalarintern
            scalarintern.install()
            thread.join(120)
            require(not thread.is_alive() and not failed, "no deadlock and no error")
            require(scalarintern.is_installed(), "installed")
            work()
            """
        )
        assert said.stdout.split() == [stock_digest, "interned"]

    def test_inside_a_context(self, stock_digest: str) -> None:
        """Installed while a context is open, it makes fresh scalars until that is left."""
        said = run(
            """
            import cutlass.cute
            from cutlass.base_dsl import typing
            ir = typing.ir
            with ir.Context():
                import scalarintern
                require(scalarintern.is_installed(), "installed")
                first, second = typing.Int32.intern(64), typing.Int32.intern(64)
                require(first is not second, "fresh while a trace is open")
                require(first.value == second.value == 64, "of the value")
                require(scalarintern.stats().live == 0, "nothing is stored")
            require(ir.Context.current is None, "left")
            require(typing.Int32.intern(64) is typing.Int32.intern(64), "canonical from now on")
            with ir.Context() as outer:
                with ir.Context(), outer:
                    require(typing.Int32.intern(64) is not typing.Int32.intern(64), "nested")
                require(typing.Int32.intern(64) is not typing.Int32.intern(64), "still open")
                require(scalarintern.uninstall() == [], "uninstalled inside")
                require(typing.Int32(64).__c_pointers__(), "marshals")
                require(scalarintern.install().installed, "and installed again inside")
                require(typing.Int32.intern(64) is not typing.Int32.intern(64), "still open")
            require(typing.Int32.intern(64) is typing.Int32.intern(64), "canonical again")
            work()
            """
        )
        assert said.stdout.split() == [stock_digest, "interned"]


#: Options and variables.
INTERPRETERS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "-O": (("-O",), {}),
    "-OO -bb": (("-OO", "-bb"), {}),
    "-X dev": (("-X", "dev"), {}),
    "-W error": (("-W", "error"), {}),
    "malloc": ((), {"PYTHONMALLOC": "malloc"}),
    "debug": ((), {"PYTHONMALLOC": "debug"}),
}


class TestInterpreter:
    """Options of the interpreter change nothing."""

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=() if name in ("-O", "-W error", "debug") else slow)
            for name in INTERPRETERS
        ],
    )
    def test_option(self, stock_digest: str, name: str) -> None:
        """The scalars do the same, and nothing is said on stderr about this package."""
        options, variables = INTERPRETERS[name]
        text = "import scalarintern\nimport cutlass.cute\nwork()"
        done = run(text, options=options, check=False, **variables)
        if done.returncode or options[:1] in (("-O",), ("-OO",)):
            # The DSL may not stand the option, or do without its own asserts.
            stock = run(text, options=options, check=False, **{**variables, "SCALARINTERN": "0"})
            if stock.returncode:
                pytest.skip("the DSL itself does not stand it: " + stock.stderr[-200:])
            stock_digest = stock.stdout.split()[0]
        assert done.returncode == 0, done.stderr[-4000:]
        for trouble in ("Exception ignored", "UnknownLayoutWarning", "scalarintern/"):
            assert trouble not in done.stderr, done.stderr[-4000:]

        assert done.stdout.split() == [stock_digest, "interned"]

    def test_warnings_as_errors_after_the_import(self, stock_digest: str) -> None:
        """With all warnings as errors, intern raises what the constructor raises, each time."""
        said = run(
            """
            import scalarintern
            from cutlass.base_dsl import typing
            warnings.simplefilter("error")
            cases = ((typing.Int32, 2**40), (typing.Float32, 1e300), (typing.Int8, 300.0))
            for cls, value in cases:
                outcomes = []
                for make in (cls, cls.intern, cls, cls.intern):
                    try:
                        outcomes.append(repr(make(value)))
                    except Exception as error:
                        outcomes.append(type(error).__name__)
                require(len(set(outcomes)) == 1, outcomes)
            for cls, value in ((typing.Int32, 5), (typing.Float32, 0.1)):
                require(cls.intern(value) is cls.intern(value), "no warning of ours")
                cls.intern(value).__c_pointers__()
            scalarintern.uninstall()
            scalarintern.install()
            work()
            """
        )
        assert said.stdout.split() == [stock_digest, "interned"]

    @slow
    def test_without_site(self, stock_digest: str, dsl: ModuleType) -> None:
        """python -S, with the folders of the DSL and of the dependencies on the path."""
        root = Path(scalarintern.__file__).resolve().parent.parent
        folders = [str(root), str(Path(dsl.__file__ or "").parent.parent.parent)]
        folders += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        said = run(
            "import scalarintern\nimport cutlass.cute\nwork()",
            options=("-S",),
            PYTHONPATH=os.pathsep.join(dict.fromkeys(folders)),
        )
        assert said.stdout.split() == [stock_digest, "interned"]

    def test_frozen_garbage_collector(self, stock_digest: str) -> None:
        """gc.freeze() before, between and after: scalars are shared, dropped and made again."""
        said = run(
            """
            gc.freeze()
            import scalarintern
            gc.freeze()
            from cutlass.base_dsl import typing
            held = typing.Int32.intern(64)
            pointer = held.__c_pointers__()[0]
            gc.freeze()
            import weakref
            reference = weakref.ref(typing.Int32.intern(12345))
            require(typing.Int32.intern(64) is held, "one object")
            scalarintern.clear()
            require(reference() is None, "what is dropped dies by its count alone")
            require(typing.Int32.intern(12345).value == 12345, "and is made again")
            require(held.__c_pointers__()[0] is pointer, "one buffer")
            def make():
                class Mine(typing.Int32):
                    pass
                Mine.intern(5).__c_pointers__()
                return weakref.ref(Mine)
            dropped = make()
            gc.collect()
            require(dropped() is None, "a class made after it is collected")
            gc.unfreeze()
            gc.collect()
            work()
            """
        )
        assert said.stdout.split() == [stock_digest, "interned"]
