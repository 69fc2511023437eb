"""Looks at the DSL with and without the adapter, each in a fresh process, and judges."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from scalarintern.tools._child import PACKAGE, events, package_path
from scalarintern.tools.growth import FIXED_IN

#: Environment variables that change what this package does, or what memory looks like.
SWITCHES = (
    "SCALARINTERN", "SCALARINTERN_LAUNCH", "SCALARINTERN_AUDIT", "SCALARINTERN_CACHE",
    "PYTHONMALLOC", "PYTHONGIL", "LD_PRELOAD", "MALLOC_ARENA_MAX",
)  # fmt: skip

OK = "ok"
NOTE = "note"
ATTENTION = "attention"


@attrs.frozen
class Line:
    """One thing looked at: how it stands (`OK`, `NOTE`, `ATTENTION`) and what to do about it."""

    topic: str
    status: str
    text: str
    todo: str = ""


@attrs.frozen
class Diagnosis:
    """All that was looked at, and the figures behind it."""

    lines: tuple[Line, ...]
    facts: Mapping[str, Any]

    @property
    def healthy(self) -> bool:
        """Whether nothing needs attention."""
        return all(line.status != ATTENTION for line in self.lines)


def diagnose() -> Diagnosis:
    """Look at this environment; takes a few seconds, since the DSL is imported twice.

    Raises:
        ToolError: the DSL is missing or cannot be imported.
    """
    with package_path() as package, ThreadPoolExecutor(2) as pool:
        stock_, interned_ = pool.map(lambda mode: _look(mode, package), ("stock", "interned"))
    stock, interned = stock_, interned_
    different = differences(stock["bytes"], interned["bytes"])
    lines = (
        _python(),
        _package(),
        Line("DSL", OK, f"nvidia-cutlass-dsl {stock['release']} in {stock['location']}"),
        *_leak(stock, interned),
        *_adapter(interned),
        _launch(interned["adapter"]),
        _bytes(stock["bytes"], different),
        _collector(interned),
        _environment(),
    )
    facts = {
        "python": sys.version,
        "executable": sys.executable,
        "scalarintern": own_version(),
        "environment": _switches(),
        "stock": {key: value for key, value in stock.items() if key != "bytes"},
        "interned": {key: value for key, value in interned.items() if key != "bytes"},
        "bytes_that_differ": different,
    }
    return Diagnosis(lines, facts)


def own_version() -> str:
    """Return the installed version of this package; a checkout on the path has none."""
    try:
        return importlib.metadata.version("scalarintern")
    except importlib.metadata.PackageNotFoundError:
        return "not installed, run from a checkout"


def differences(
    stock: Mapping[str, Mapping[str, list[str]]], interned: Mapping[str, Mapping[str, list[str]]]
) -> dict[str, dict[str, list[str]]]:
    """Return where interned bytes, pointer types, errors or warnings are not those of stock.

    By class and value: what stock gave, then what interned gave the first and the second time.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for name in sorted(stock.keys() | interned.keys()):
        ours, theirs = interned.get(name, {}), stock.get(name, {})
        for value in theirs.keys() | ours.keys():
            if ours.get(value) != theirs.get(value):
                record = [*theirs.get(value, ["missing"])[:1], *ours.get(value, ["missing"])]
                found.setdefault(name, {})[value] = record
    return found


def _look(mode: str, package: Path) -> Mapping[str, Any]:
    # The interned child sees the environment as it is: a switch may keep the adapter off.
    [seen] = events(
        "marshalled_bytes.py",
        (mode,),
        interned=mode == "interned",
        package=package,
        keep_switches=mode == "interned",
    )
    return seen


def _python() -> Line:
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"{version} at {sys.executable}"
    if sys.version_info < (3, 10) or sys.implementation.name != "cpython":
        return Line("Python", ATTENTION, text, "use CPython 3.10 or newer")
    return Line("Python", OK, text)


def _package() -> Line:
    return Line("scalarintern", OK, f"{own_version()} in {PACKAGE}")


def _leak(stock: Mapping[str, Any], interned: Mapping[str, Any]) -> Iterator[Line]:
    before = max(stock["left_by_one_call"].values())
    after = max(interned["left_by_one_call"].values())
    release = stock["release"]
    if before:
        text = f"{release} leaks: one stock call leaves {before} objects that only gc frees"
        todo = f"`import scalarintern` in the program, or upgrade to {FIXED_IN} or newer"
        yield Line("leak", NOTE, text, todo)
    else:
        yield Line("leak", OK, f"{release} does not leak: one stock call leaves nothing behind")
    if after:
        yield Line(
            "leak",
            ATTENTION,
            f"interned, one call leaves {after} objects",
            "report it with `scalarintern doctor --json`",
        )
    elif before:
        yield Line("leak", OK, "interned, one call leaves nothing behind")


def _adapter(interned: Mapping[str, Any]) -> Iterator[Line]:
    record = interned["adapter"]
    if not record["installed"]:
        yield Line(
            "adapter",
            ATTENTION,
            f"not applied: {record['reason']}",
            "the program runs on stock; upgrade scalarintern, or report it",
        )
        return
    count = len(record["patched"])
    if record["applied_by_import"]:
        yield Line("adapter", OK, f"applied by `import scalarintern`: {count} members patched")
    else:
        yield Line(
            "adapter",
            ATTENTION,
            "can be applied, but `import scalarintern` did not",
            "unset SCALARINTERN"
            if os.environ.get("SCALARINTERN") == "0"
            else "call scalarintern.install(), and report it",
        )
    theirs = {
        name: why for name, why in record["left_alone"].items() if "replaced by someone" in why
    }
    if theirs:
        yield Line(
            "adapter",
            ATTENTION,
            f"left alone, patched by someone else: {', '.join(theirs)}",
            "import scalarintern before what patches them, or leave that patch out",
        )
    others = [name.removesuffix(".__c_pointers__") for name in record["left_alone"]]
    others = [name for name in others if f"{name}.__c_pointers__" not in theirs]
    if others:
        yield Line("adapter", NOTE, f"left alone, stock does not marshal them: {', '.join(others)}")
    for warning in interned["warnings"]:
        yield Line("adapter", ATTENTION, warning, "see the warning")


def _launch(record: Mapping[str, Any]) -> Line:
    if record["launch"]:
        return Line("launch", OK, "launches take the short way")
    if os.environ.get("SCALARINTERN_LAUNCH") == "0":
        return Line(
            "launch", ATTENTION, "the short way is switched off", "unset SCALARINTERN_LAUNCH"
        )
    why = record["launch_reason"] or record["reason"] or "the adapter is not applied"
    return Line("launch", NOTE, f"launches take the release's own way: {why}")


def _bytes(
    stock: Mapping[str, Mapping[str, object]], different: Mapping[str, Mapping[str, object]]
) -> Line:
    values = sum(map(len, stock.values()))
    text = f"{len(stock)} classes, {values} values"
    if not different:
        return Line("bytes", OK, f"{text}: interned marshals as stock does")
    names = ", ".join(f"{name} ({', '.join(values)})" for name, values in different.items())
    return Line(
        "bytes",
        ATTENTION,
        f"{text}: interned differs from stock for {names}",
        "set SCALARINTERN=0 for now, and report it with `scalarintern doctor --json`",
    )


def _collector(interned: Mapping[str, Any]) -> Line:
    state = "on" if interned["gc_enabled_after_import"] else "off"
    threshold = ", ".join(map(str, interned["gc_threshold"]))
    return Line(
        "gc", OK, f"{state} at start, thresholds {threshold}; the program may set it otherwise"
    )


def _switches() -> dict[str, str]:
    return {name: os.environ[name] for name in SWITCHES if name in os.environ}


def _environment() -> Line:
    said = ", ".join(f"{name}={value}" for name, value in _switches().items())
    return Line("switches", OK, said or "none set")
