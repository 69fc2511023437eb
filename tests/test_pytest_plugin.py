"""The pytest plugin, run in pytest processes of its own."""

from __future__ import annotations

import re

import pytest
from cli_support import ROOT, environment, needs_dsl

pytest.importorskip("pympler")
pytest_plugins = ["pytester"]
#: Hypothesis's plugin imports all of it, a second in each process.
LIGHT = ("-p", "no:hypothesispytest")


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on a test file, with the plugin, in a fresh process."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    assert ROOT.is_dir()

    def run_pytest(source, *arguments):
        pytester.makepyfile(source)
        # Where the package is installed its entry point loads the plugin, too: the same, once.
        return pytester.runpytest_subprocess(*LIGHT, "-p", "pytest_scalarintern", *arguments)

    return run_pytest


def test_the_marker_fails_a_test_that_grows(run):
    """A marked test that leaves objects behind fails and names them; one that doesn't passes."""
    result = run(
        """
        import pytest
        kept = []

        @pytest.mark.no_growth
        def test_grows():
            kept.append({})

        @pytest.mark.no_growth(rounds=20, warmup=2)
        def test_does_not():
            {}.copy()
        """
    )

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_grows grew in each of 3 windows of 100 rounds*"])
    result.stdout.fnmatch_lines(["*dict: +1*objects a round*"])


def test_the_marker_works_with_parameters_fixtures_and_classes(run):
    """Arguments reach the function on each call; methods and unittest cases work, too."""
    result = run(
        """
        import unittest
        import pytest
        calls = []

        @pytest.fixture
        def number():
            return 7

        @pytest.mark.no_growth(rounds=5, warmup=1, limit=9)
        @pytest.mark.parametrize("other", [1, 2])
        def test_function(number, other):
            assert number == 7 and other in (1, 2)

        @pytest.mark.no_growth(rounds=5, warmup=1)
        class TestClass:
            def test_method(self, number):
                assert number == 7

        class Case(unittest.TestCase):
            kept = []

            @pytest.mark.no_growth(rounds=5)
            def test_grows(self):
                self.kept.append([])
        """
    )

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*Case.test_grows grew in each*"])


def test_a_failure_of_the_test_itself_is_shown_as_ever(run):
    """An assertion in the test fails it at once, with its own message."""
    result = run(
        """
        import pytest

        @pytest.mark.no_growth
        def test_wrong():
            assert 1 + 1 == 3
        """
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert (1 + 1) == 3*"])


def test_the_function_is_restored_afterwards(run):
    """Other plugins find the item's own function again."""
    result = run(
        """
        import pytest

        @pytest.fixture
        def looks(request):
            yield
            print("own", request.node.obj is test_marked)

        @pytest.mark.no_growth(rounds=3)
        def test_marked(looks):
            pass
        """,
        "-s",
    )

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*own True*"])


@pytest.mark.parametrize(
    ("decorated", "message"),
    [
        ("@pytest.mark.no_growth(round=3)\ndef test_it(): pass", "*no_growth marker:*round*"),
        ("@pytest.mark.no_growth(5)\ndef test_it(): pass", "*no_growth marker: too many*"),
        ("@pytest.mark.no_growth\nasync def test_it(): pass", "*can only repeat an ordinary*"),
    ],
)
def test_wrong_use_of_the_marker_is_a_sentence(run, decorated, message):
    """Unknown arguments and coroutine functions fail with a sentence."""
    result = run(f"import pytest\n{decorated}\n")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])


def test_the_fixture_is_the_assertion(run):
    """``no_growth(func)`` asserts in the middle of a test."""
    result = run(
        """
        import pytest
        kept = []

        def test_it(no_growth):
            no_growth(lambda: [].copy(), rounds=10)
            with pytest.raises(AssertionError, match="list"):
                no_growth(lambda: kept.append([]), rounds=10)
        """
    )

    result.assert_outcomes(passed=1)


def test_the_plugin_applies_nothing(run):
    """Neither loading the plugin nor using it imports scalarintern, the DSL or, unused, pympler."""
    result = run(
        """
        import sys
        import pytest

        def test_unused():
            assert not {"scalarintern", "cutlass", "pympler"} & set(sys.modules)

        @pytest.mark.no_growth(rounds=2)
        def test_used():
            assert "scalarintern" not in sys.modules and "cutlass" not in sys.modules
        """
    )

    result.assert_outcomes(passed=2)


@needs_dsl
def test_stock_and_interned_programs_are_told_apart(run):
    """A program that does not import scalarintern is tested as it is: stock may fail."""
    result = run(
        """
        import gc
        import pytest
        from cutlass.base_dsl.typing import Int32

        def leaks():
            scalar = Int32(5)
            gc.collect()
            gc.disable()
            scalar.__c_pointers__()
            left = gc.collect()
            gc.enable()
            return left

        def test_stock(no_growth):
            if leaks():
                with pytest.raises(AssertionError, match="put `import scalarintern` into"):
                    no_growth(lambda: Int32(64).__c_pointers__())
            else:
                no_growth(lambda: Int32(64).__c_pointers__())

        def test_interned(no_growth):
            import scalarintern
            no_growth(lambda: Int32(64).__c_pointers__())
        """,
        "--scalarintern-stats",
    )

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*= scalarintern =*", "installed: 1", "misses: 1"])


def test_stats_without_scalarintern(run):
    """``--scalarintern-stats`` says so where nothing imported scalarintern."""
    result = run("def test_it(): pass", "--scalarintern-stats")

    result.stdout.fnmatch_lines(["not imported in this process"])


def test_help_and_markers(run):
    """``--help`` has the option and ``--markers`` the marker with its arguments."""
    run("", "--help").stdout.fnmatch_lines(["*--scalarintern-stats*"])
    run("", "--markers").stdout.fnmatch_lines(["@pytest.mark.no_growth(rounds=100, warmup=10*"])


@pytest.mark.parametrize("arguments", [(), ("-p", "pytest_scalarintern")])
def test_an_installed_plugin_may_be_named_as_well(run, pytester, arguments):
    """The entry point alone loads the plugin; ``-p`` beside it loads it no second time."""
    declared = (ROOT / "pyproject.toml").read_text()
    [entry] = re.findall(r"\[project\.entry-points\.pytest11\]\n(?:#.*\n)*(.*)\n", declared)
    installed = pytester.path / "declared-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{entry.replace(chr(34), '')}\n")
    pytester.makepyfile("import pytest\n@pytest.mark.no_growth\ndef test_it(): pass")

    result = pytester.runpytest_subprocess(*LIGHT, "--strict-markers", *arguments)

    result.assert_outcomes(passed=1)
    assert not result.stderr.lines
