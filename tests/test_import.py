"""`import scalarintern` loads next to nothing; all that it gives is there all the same."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import run_without_dsl

Run = Callable[..., "subprocess.CompletedProcess[str]"]

#: A package named cutlass that is quickly imported, and whose layout nobody knows.
STAND_IN = {
    "cutlass/__init__.py": "import cutlass.base_dsl.typing, breaks\n",
    "cutlass/base_dsl/__init__.py": "",
    "cutlass/base_dsl/typing.py": "Numeric = int\n",
    "breaks.py": "",
}


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[..., str]:
    """Give a function that runs a program in which ``cutlass`` is the stand-in."""
    for name, text in STAND_IN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def run(text: str, *options: str, **variables: str) -> str:
        return run_without_dsl(text, tmp_path, options=options, **variables)

    return run


class TestWhatIsLoaded:
    """An import costs what it loads."""

    @pytest.mark.parametrize("switch", ["1", "0"])
    def test_next_to_nothing(self, run_program: Run, switch: str) -> None:
        """Three small modules of the package, and nothing that Python had not loaded."""
        text = """
            import os, sys
            before = set(sys.modules)
            import scalarintern
            dir(scalarintern), hasattr(scalarintern, "__wrapped__")
            print(*sorted(set(sys.modules) - before - {"__future__"}))
        """

        loaded = run_program(text, SCALARINTERN=switch).stdout.split()

        assert loaded == ["scalarintern", "scalarintern.errors", "scalarintern.import_hook"]

    def test_heavy_modules(self, run_program: Run) -> None:
        """None of the DSL, the dependencies and the plotting libraries, in so many words."""
        text = """
            import sys, scalarintern
            heavy = "attr attrs ctypes wrapt asyncio typing cutlass numpy matplotlib rich"
            print([name for name in heavy.split() if name in sys.modules])
        """

        assert run_program(text).stdout == "[]\n"

    def test_a_registry_alone(self, run_program: Run) -> None:
        """ScalarRegistry comes without the adapter."""
        text = """
            import sys
            from scalarintern import ScalarRegistry
            print("scalarintern.registry" in sys.modules, "scalarintern.dsl_adapter" in sys.modules)
        """

        assert run_program(text).stdout == "True False\n"


class TestNames:
    """What is loaded late looks as if it had been there."""

    def test_every_name(self, run_program: Run) -> None:
        """Names, star import, dir(), help() and submodules; a wrong name is an AttributeError."""
        text = """
            import scalarintern
            assert set(scalarintern.__all__) <= set(dir(scalarintern))
            for name in scalarintern.__all__:
                value = getattr(scalarintern, name)
                assert value is getattr(scalarintern, name) is vars(scalarintern)[name], name
            names = {}
            exec("from scalarintern import *", names)
            assert set(scalarintern.__all__) == set(names) - {"__builtins__"}
            from scalarintern import dsl_adapter, registry
            assert scalarintern.dsl_adapter is dsl_adapter
            assert scalarintern.registry is registry
            assert scalarintern.stats() == dsl_adapter.registry.stats()
            assert getattr(scalarintern, "__version__", "not installed")
            for wrong in ("nothing", "testing", "TYPE"):
                try:
                    getattr(scalarintern, wrong)
                except AttributeError as error:
                    assert wrong in str(error)
                else:
                    raise SystemExit(wrong)
            import pydoc
            text = pydoc.plain(pydoc.render_doc(scalarintern))
            for name in scalarintern.__all__:
                assert name in text, name
        """

        run_program(text)

    @pytest.mark.parametrize("name", ["buffers", "dsl_adapter", "registry", "launch", "tracing"])
    def test_submodules(self, run_program: Run, name: str) -> None:
        """What could be reached as an attribute can be, without an import of it by name."""
        said = run_program(f"import scalarintern; print(scalarintern.{name}.__name__)").stdout

        assert said == f"scalarintern.{name}\n"

    def test_the_one_object(self, run_program: Run) -> None:
        """Threads that first use names at once, and pickles, get the same objects."""
        text = """
            import pickle, threading
            import scalarintern
            barrier, found = threading.Barrier(8), []
            def look():
                barrier.wait()
                found.append((scalarintern.stats, scalarintern.install, scalarintern.Installation))
            threads = [threading.Thread(target=look) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert len(found) == 8 and len(set(found)) == 1
            for value in (scalarintern.stats(), scalarintern.install(), scalarintern.Finding):
                again = pickle.loads(pickle.dumps(value))
                assert again == value and type(again) is type(value)
        """

        run_program(text)

    def test_what_was_put_in_a_names_place_stays(self, run_program: Run) -> None:
        """A patched name is the patch, also across a first use of others."""
        text = """
            from unittest import mock
            import scalarintern
            with mock.patch("scalarintern.stats", return_value=5):
                assert scalarintern.stats() == 5
                scalarintern.audit()
                assert scalarintern.stats() == 5
            assert scalarintern.stats().live == 0
        """

        run_program(text)

    def test_without_the_dependencies(self, stand_in: Callable[..., str]) -> None:
        """The first use says what is missing; the import of the DSL goes on without us."""
        said = stand_in(
            """
            import sys
            sys.modules.update(attr=None, attrs=None)
            import scalarintern
            for _ in range(2):
                try:
                    scalarintern.stats
                except ModuleNotFoundError as error:
                    print(error.name)
            import cutlass
            print("goes on")
            """,
            "-W",
            "error",
        )

        assert said.startswith("attrs\nattrs\ngoes on\nscalarintern: not applied: ModuleNotFound")


class TestBeforeTheDSL:
    """What is asked for before the DSL is there holds when it comes."""

    def test_the_import_is_noticed(self, stand_in: Callable[..., str]) -> None:
        """The adapter comes in with the DSL, in any thread; here it does not know the layout."""
        for start in ("work()", "thread = threading.Thread(target=work); thread.start()"):
            said = stand_in(
                f"""
                import sys, threading
                import scalarintern
                def work():
                    import cutlass.base_dsl.typing
                    loader = cutlass.__spec__.loader
                    assert loader is cutlass.__loader__
                    assert type(loader).__name__ == "SourceFileLoader", loader
                assert "scalarintern.dsl_adapter" not in sys.modules
                {start}
                """
            )
            assert said.count("UnknownLayoutWarning") == 1

    def test_states(self, stand_in: Callable[..., str]) -> None:
        """Off after uninstall(), on after install() or a reload, as often as one likes."""
        for ask, applied in (
            ("", True),
            ("scalarintern.is_installed(), scalarintern.stats()", True),
            ("scalarintern.uninstall()", False),
            ("scalarintern.uninstall(); scalarintern.install()", True),
            ("scalarintern.uninstall(); importlib.reload(scalarintern)", True),
            ("importlib.reload(scalarintern); scalarintern.uninstall()", False),
        ):
            said = stand_in(
                f"""
                import importlib, sys
                import scalarintern
                {ask}
                assert not scalarintern.is_installed()
                import cutlass
                """
            )
            assert ("UnknownLayoutWarning" in said) == applied, ask
        for ask, applied in (("", False), ("scalarintern.install()", True)):
            said = stand_in(f"import scalarintern; {ask}\nimport cutlass", SCALARINTERN="0")
            assert ("UnknownLayoutWarning" in said) == applied, ask

    @pytest.mark.parametrize(("gone", "times"), [("nothing", 1), ("cutlass", 2)])
    def test_an_import_that_fails(
        self, stand_in: Callable[..., str], gone: str, times: int
    ) -> None:
        """A second attempt goes through; where all of the first is gone, it is noticed as well."""
        said = stand_in(
            f"""
            import sys
            import scalarintern
            from scalarintern import dsl_adapter
            applied = []
            dsl_adapter._install_on = lambda typing, launch: applied.append(typing)
            sys.modules["breaks"] = None
            try:
                import cutlass
            except ImportError as error:
                print(error.name)
            del sys.modules["breaks"]
            for name in [name for name in sys.modules if name.startswith({gone!r})]:
                del sys.modules[name]
            import cutlass
            print(len(applied), applied[-1] is sys.modules["cutlass.base_dsl.typing"])
            """
        )

        assert said == f"breaks\n{times} True\n"

    def test_interrupted(self, stand_in: Callable[..., str]) -> None:
        """Ctrl-C while the adapter is being loaded ends that import; the next one is noticed."""
        said = stand_in(
            """
            import sys
            import scalarintern
            class Interrupts:
                left = 1
                def find_spec(self, name, path=None, target=None):
                    if name == "wrapt" and self.left:
                        self.left = 0
                        raise KeyboardInterrupt
            sys.meta_path.insert(0, Interrupts())
            try:
                import cutlass
            except KeyboardInterrupt:
                print("interrupted", "cutlass" in sys.modules)
            import cutlass
            """
        )

        assert said.startswith("interrupted False")
        assert said.count("UnknownLayoutWarning") == 1

    def test_looking_for_it_is_no_import(self, stand_in: Callable[..., str]) -> None:
        """find_spec() gives a spec that can all that the package's own can, and loads nothing."""
        stand_in(
            """
            import importlib.util, sys
            import scalarintern
            spec = importlib.util.find_spec("cutlass")
            assert spec.loader.get_filename() == spec.origin
            assert "import" in spec.loader.get_source("cutlass")
            assert "scalarintern.dsl_adapter" not in sys.modules
            """
        )

    def test_no_deadlock_with_an_import_elsewhere(
        self, stand_in: Callable[..., str], tmp_path: Path
    ) -> None:
        """What is loaded for the DSL may be half imported by another thread, which imports on."""
        (tmp_path / "slow.py").write_text(
            "import threading, time\nstarted.set()\ntime.sleep(0.5)\nimport breaks\n"
        )
        said = stand_in(
            """
            import builtins, faulthandler, threading
            faulthandler.dump_traceback_later(60, exit=True)
            from scalarintern import import_hook
            builtins.started = threading.Event()
            def load():
                import slow
                print("loaded\\n", end="")  # one write, so that no line gets between
            import_hook.arm(load)
            thread = threading.Thread(target=load)
            thread.start()
            started.wait()
            import cutlass
            thread.join()
            """
        )

        # Twice: in cutlass and in cutlass.base_dsl; and by the thread.
        assert said == "loaded\n" * 3

    def test_arguments_are_kept(self, run_program: Run) -> None:
        """install(launch=False) before the DSL leaves its launches alone."""
        pytest.importorskip("cutlass.base_dsl.typing", reason="the DSL is not installed")
        text = """
            import scalarintern
            assert "not imported" in scalarintern.install(launch=False).reason
            import cutlass.cute
            done = scalarintern.install()
            print(done.installed, done.launch, done.launch_reason)
        """

        assert run_program(text).stdout == "True False switched off\n"

    def test_audits_are_kept(self, run_program: Run) -> None:
        """SCALARINTERN_AUDIT holds however the adapter comes in."""
        pytest.importorskip("cutlass.base_dsl.typing", reason="the DSL is not installed")
        body = """
            import ctypes
            from cutlass.base_dsl.typing import Int32
            import scalarintern
            assert scalarintern.is_installed()
            [pointer] = Int32(64).__c_pointers__()
            ctypes.memset(pointer.value, 0x55, 1)
        """
        for first in ("import scalarintern", "import cutlass", "from scalarintern import stats"):
            done = run_program(first + textwrap.dedent(body), SCALARINTERN_AUDIT="1")
            assert "the buffer of Int32(64) holds 55000000" in done.stderr, first
