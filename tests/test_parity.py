"""Interned scalars against stock ones, each in a process of its own, field by field."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from parity import faults, probe
from parity.compare import Difference, differences, finish, run_child

SLOW = bool(os.environ.get("SCALARINTERN_SLOW"))
Quick = Callable[["str | None"], Path]
QUICK = ("--size", "quick", "--only", "Int32", "Float16", "BFloat16", "Float32")
#: Differences that are meant, by section, class and field; each is in docs/compatibility.md.
MEANT: set[tuple[str, str, str]] = set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder for the outputs of both sides."""
    pytest.importorskip("cutlass.base_dsl.typing", reason="the DSL is not installed")
    return tmp_path_factory.mktemp("parity")


@pytest.fixture(scope="module")
def quick(folder: Path) -> Quick:
    """Run the quick battery in stock and with each fault; gives a function to get an output."""
    children = {}
    for name in (None, *faults.FAULTS):
        output = folder / f"quick {name}.jsonl"
        arguments = QUICK if name is None else (*QUICK, "--fault", name)
        children[name] = run_child("probe", output, *arguments, stock=name is None), output

    def give(name: str | None) -> Path:
        finish(*children[name], timeout=600)
        return children[name][1]

    return give


def compare(stock: Path, interned: Path) -> list[Difference]:
    """Give the differences but for those that are meant and the first line, whose side it is."""
    with stock.open() as theirs, interned.open() as ours:
        before = json.loads(theirs.readline())[3]
        after = json.loads(ours.readline())[3]
        assert (before, after) == ({"installed": False}, {"installed": True})
        found = list(differences(theirs, ours))
    return [one for one in found if (one.section, one.cls, one.field) not in MEANT]


def test_scalars_are_as_in_stock(folder: Path) -> None:
    """No class does anything else with any value: made, interned or written, first or again."""
    size = "full" if SLOW else "usual"
    outputs = {stock: folder / f"{size} {stock}.jsonl" for stock in (True, False)}
    children = {
        stock: run_child("probe", output, "--size", size, stock=stock)
        for stock, output in outputs.items()
    }
    for stock, child in children.items():
        finish(child, outputs[stock], 3000)

    assert outputs[True].stat().st_size > 1_000_000
    found = compare(outputs[True], outputs[False])

    assert not found, f"{len(found)} differences, such as {found[:5]}"


class TestTheSuiteCanFail:
    """Three faults put into the library on purpose; each is seen, in the fields it is in."""

    def test_merged_zeros_are_seen(self, quick: Quick) -> None:
        """One key for 0.0 and -0.0 shows in values and in bytes of float classes."""
        found = compare(quick(None), quick("zeros merged"))

        fields = {one.field.split(".", 1)[1].split(".")[0] for one in found}
        assert {"value", "pointers"} <= fields
        assert all("Float" in one.cls for one in found)

    def test_rounded_bfloat16_is_seen(self, quick: Quick, dsl: ModuleType) -> None:
        """Rounding where the DSL truncates shows in the bytes of BFloat16 alone."""
        found = compare(quick(None), quick("BFloat16 rounded"))

        if not hasattr(dsl.BFloat16.intern(1.0), "value") or not _marshals(dsl.BFloat16):
            assert not found
        else:
            assert found
            assert {one.cls for one in found} <= {"BFloat16", "SubBFloat16"}
            assert all("pointers" in one.field for one in found)

    def test_a_stale_pointer_is_seen(self, quick: Quick) -> None:
        """A pointer kept over a write to .value shows where values are written."""
        found = compare(quick(None), quick("stale pointer"))

        assert {one.cls for one in found} <= {"Int32", "Float32", "SubInt32", "SubFloat32"}
        assert {"Int32", "Float32"} <= {one.cls for one in found if one.section == "written"}

    def test_a_pointer_that_keeps_nothing_alive_is_seen(self, dsl: ModuleType) -> None:
        """An address counts only inside a buffer that the pointer holds, or in the pointer."""
        [pointer] = dsl.Int32(77).__c_pointers__()
        kept = dsl.Int32.intern(77)

        assert probe.owned_size(pointer, dsl.Int32) == 4
        for address in (pointer.value, ctypes.addressof(kept_bytes := ctypes.c_int32(77))):
            with pytest.raises(AssertionError, match="nothing keeps"):
                probe.owned_size(ctypes.c_void_p(address), dsl.Int32)
        assert (kept.value, kept_bytes.value) == (77, 77)


def _marshals(cls: type) -> bool:
    try:
        return bool(cls(1.0).__c_pointers__())  # type: ignore[call-arg,attr-defined]
    except ValueError:
        return False
