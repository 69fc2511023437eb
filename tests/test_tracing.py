"""Canonical scalars in traces: the IR is the text that stock gives, and so is what runs."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from parity.compare import finish, run_child

#: Scenarios that fail in stock too, by release, with the first word of the error.
STOCK_FAILS = {("4.2.", "kernel"): "MLIRError"}
#: Scenarios with another text that is meant, by release and mode; see docs/compatibility.md.
MEANT = (("4.7.", "pyir", "two_owners_in_tuples"),)
HAS_PYIR = (
    importlib.util.find_spec("cutlass") is not None
    and importlib.util.find_spec("cutlass.base_dsl.pyir_runtime") is not None
)
Sides = tuple[dict[str, str], dict[str, str]]


def sections(output: Path) -> dict[str, str]:
    """Give what each scenario printed."""
    found: dict[str, str] = {}
    for part in output.read_text(errors="replace").split("=== ")[1:]:
        name, _, text = part.partition("\n")
        found[name] = text
    assert list(found)[-1] == "end", "the child stopped half way"
    return found


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sides]:
    """Start all scenarios on both sides and in every mode; gives a function that waits for one."""
    pytest.importorskip("cutlass.base_dsl.typing", reason="the DSL is not installed")
    folder = tmp_path_factory.mktemp("tracing")
    children = {}
    for front_end in ("ast", "pyir") if HAS_PYIR else ("ast",):
        variables = {"CUTE_DSL_ENABLE_PYIR": "1"} if front_end == "pyir" else {}
        for mode, arguments in (("", ()), (" run", ("--run",))):
            for stock in (True, False):
                output = folder / f"{front_end}{mode} {stock}.txt"
                child = run_child("trace_probe", output, *arguments, stock=stock, **variables)
                children[front_end + mode, stock] = (child, output)

    def give(mode: str) -> Sides:
        for stock in (True, False):
            finish(*children[mode, stock], timeout=600)
        return sections(children[mode, True][1]), sections(children[mode, False][1])

    return give


def check(stock: dict[str, str], ours: dict[str, str], release: str, mode: str) -> None:
    """Fail with the first lines that differ."""
    assert list(stock) == list(ours)
    for name, text in stock.items():
        if "failed: " in text:
            reasons = [
                why
                for (of, what), why in STOCK_FAILS.items()
                if release.startswith(of) and what == name
            ]
            assert [why for why in reasons if f"failed: {why}" in text], f"{name}: {text[-2000:]}"
        if any(
            release.startswith(of) and mode.startswith(meant) and what == name
            for of, meant, what in MEANT
        ):
            assert "failed: " not in ours[name]
            continue
        lines = difflib.unified_diff(text.splitlines(), ours[name].splitlines(), "stock", "ours")
        assert text == ours[name], name + "\n" + "\n".join(list(lines)[:60])


def test_the_ir_is_stocks(traces: Callable[[str], Sides], release: str) -> None:
    """Every scenario gives the same IR with shared scalars as with fresh ones in stock."""
    stock, ours = traces("ast")

    assert sum(text.count("module attributes") for text in stock.values()) > 100
    check(stock, ours, release, "ast")


def test_what_runs_is_stocks(traces: Callable[[str], Sides], release: str) -> None:
    """Compiled host functions print the same with shared, fresh and raw arguments."""
    if release.startswith(("4.3.", "4.4.")):
        pytest.skip("this release compiles only where there is a GPU driver")
    stock, ours = traces("ast run")

    assert "not compiled" not in "".join(stock.values())
    check(stock, ours, release, "ast run")


@pytest.mark.skipif(not HAS_PYIR, reason="the release has no PyIR")
class TestPyIR:
    """The same with the other front end."""

    def test_the_ir_is_stocks(self, traces: Callable[[str], Sides], release: str) -> None:
        """Nothing of a closed trace is left on shared scalars for the next one."""
        stock, ours = traces("pyir")

        assert "pyir." in "".join(stock.values())
        check(stock, ours, release, "pyir")

    def test_what_runs_is_stocks(self, traces: Callable[[str], Sides], release: str) -> None:
        """Compiled host functions print the same."""
        stock, ours = traces("pyir run")

        printed = [
            {
                name: [line for line in text.splitlines() if line[:1] in "0123456789-"]
                for name, text in side.items()
            }
            for side in (stock, ours)
        ]
        assert sum(map(len, printed[0].values())) > 20
        assert printed[0] == printed[1]
