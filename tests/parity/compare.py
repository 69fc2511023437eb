"""Runs the child on either side and compares what the two say, field by field."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import attrs

#: The DSL's cache of compiled functions is one folder for all processes of a user, who may be at
#: work in it, and a release reads it when it is imported.
NO_CACHE = {"CUTE_DSL_DISABLE_FILE_CACHING": "1"}
TESTS = Path(__file__).resolve().parent.parent


@attrs.frozen
class Difference:
    """One field in which interned scalars do other than stock ones.

    Attributes:
        section: What was done: ``value``, ``written``, ``filter …``, ``audit``.
        cls: Name of the numeric class.
        label: Name of the value.
        field: Where in the record it is.
        stock: What stock has there.
        interned: What we have there.
    """

    section: str
    cls: str
    label: str
    field: str
    stock: Any
    interned: Any


def run_child(
    module: str, output: Path, *arguments: str, stock: bool, **variables: str
) -> subprocess.Popen[bytes]:
    """Start ``python -m parity.<module>``, its output going to a file and errors to one beside."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **NO_CACHE, "PYTHONPATH": path, **variables}
    environment["SCALARINTERN"] = "0" if stock else "1"
    with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", f"parity.{module}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
        )


def finish(child: subprocess.Popen[bytes], output: Path, timeout: float) -> None:
    """Wait for a child.

    Raises:
        AssertionError: It failed; the text is the end of what it said.
    """
    try:
        code = child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        raise
    if code:
        said = output.with_suffix(".err").read_text(errors="replace")[-3000:]
        raise AssertionError(f"the child ended with {code}:\n{said}")


def differences(stock: IO[str], interned: IO[str]) -> Iterator[Difference]:
    """Give what differs between two outputs, a missing case included."""
    for ours, theirs in itertools.zip_longest(interned, stock):
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            yield Difference("end", "", "", "", theirs, ours)
            return
        section, cls, label, before = json.loads(theirs)
        if [section, cls, label] != json.loads(ours)[:3]:
            yield Difference(section, cls, label, "case", theirs, ours)
            return
        after = json.loads(ours)[3]
        for field, one, other in _fields("", before, after):
            yield Difference(section, cls, label, field, one, other)


def _fields(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if before == after and type(before) is type(after):
        return
    ways = {"made", "interned"}
    if isinstance(after, dict) and set(after) <= ways and after:
        # Stock has one way of making a scalar, and each of ours must be like it.
        reference = before["made"] if set(before) == {"made"} else [before] * 2
        for way, rounds in after.items():
            for n, record in enumerate(rounds):
                yield from _fields(f"{path}{way} {n + 1}.", reference[n], record)
    elif isinstance(before, dict) and set(before) == {"made"}:
        for n, record in enumerate(before["made"]):
            yield from _fields(f"{path}{n + 1}.", record, after)
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(set(before) | set(after)):
            yield from _fields(f"{path}{key}.", before.get(key), after.get(key))
    else:
        yield path.rstrip("."), before, after
