"""Pytest plugin of scalarintern: the ``no_growth`` marker and fixture, ``--scalarintern-stats``.

It stands outside the package because importing the package applies the adapter. A plugin that did
so would change every test run in every environment that has scalarintern installed, and the leaks
looked for would be gone. The marker and the fixture load `scalarintern.testing` alone.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType

import pytest

_ALONE = "_scalarintern_testing"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option to the command line."""
    group = parser.getgroup("scalarintern")
    group.addoption(
        "--scalarintern-stats",
        action="store_true",
        help="show the registry's figures in the summary, if the tests imported scalarintern",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "no_growth(rounds=100, warmup=10, collect=False, limit=0.0, memory_limit=16.0): run the "
        "test again and again and fail it if it leaves more objects or memory behind each time; "
        "see scalarintern.testing.assert_no_growth",
    )


@pytest.fixture
def no_growth() -> Callable[..., None]:
    """Give `scalarintern.testing.assert_no_growth`, without applying the adapter."""
    check: Callable[..., None] = _testing().assert_no_growth
    return check


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Put the assertion around a marked test's function for as long as it runs."""
    marker = item.get_closest_marker("no_growth")
    if marker is None:
        yield
        return
    if not isinstance(item, pytest.Function) or inspect.iscoroutinefunction(item.obj):
        pytest.fail("no_growth can only repeat an ordinary test function", pytrace=False)
    check = _testing().assert_no_growth
    try:
        inspect.signature(check).bind(None, *marker.args, **marker.kwargs)
    except TypeError as error:
        pytest.fail(f"no_growth marker: {error}", pytrace=False)
    original = item.obj

    @functools.wraps(original)
    def repeated(*args: object, **kwargs: object) -> None:
        __tracebackhide__ = True
        check(functools.partial(original, *args, **kwargs), **marker.kwargs)

    item.obj = repeated
    try:
        yield
    finally:
        item.obj = original


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the registry's figures, of this process, where that was asked for."""
    if not terminalreporter.config.getoption("--scalarintern-stats"):
        return
    terminalreporter.section("scalarintern")
    package = sys.modules.get("scalarintern")
    if package is None:
        terminalreporter.line("not imported in this process")
        return
    from scalarintern.metrics import stats_dict

    for name, value in stats_dict(prefix="").items():
        terminalreporter.line(f"{name}: {value:,.0f}")


def _testing() -> ModuleType:
    """Return `scalarintern.testing`, loaded by itself unless the tests have imported it."""
    for name in ("scalarintern.testing", _ALONE):
        if name in sys.modules:
            return sys.modules[name]
    package = importlib.util.find_spec("scalarintern")
    assert package is not None and package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]) / "testing.py"
    spec = importlib.util.spec_from_file_location(_ALONE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_ALONE] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        del sys.modules[_ALONE]
        pytest.fail(str(error), pytrace=False)
    return module
