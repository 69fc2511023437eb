"""``scalarintern doctor`` and the judgement behind it."""

from __future__ import annotations

import json

import pytest
from cli_support import command, needs, needs_dsl

from scalarintern.tools import diagnosis


@pytest.fixture(scope="module")
def found():
    """What it finds here."""
    return json.loads(command("doctor", "--json").stdout)


def _lines(found, topic):
    return [line for line in found["lines"] if line["topic"] == topic]


@needs_dsl
def test_it_looks_at_everything(found):
    """There is a line on each topic, each with a status and a text."""
    topics = [line["topic"] for line in found["lines"]]

    expected = "Python scalarintern DSL leak adapter launch bytes gc switches"
    assert " ".join(dict.fromkeys(topics)) == expected
    assert {line["status"] for line in found["lines"]} <= {"ok", "note", "attention"}
    assert all(line["text"] for line in found["lines"])


@needs_dsl
def test_the_leak_is_judged_by_one_call(found):
    """The line on the leak follows what one stock call left, not the release number."""
    left = found["facts"]["stock"]["left_by_one_call"]["Int32"]

    assert left in (0, 3)
    text = _lines(found, "leak")[0]["text"]
    assert ("does not leak" in text) == (left == 0)
    assert found["facts"]["interned"]["left_by_one_call"] == {"Int32": 0, "Float32": 0}


@needs_dsl
def test_every_class_is_checked(found):
    """At least all marshalling classes are compared with stock, and none differs."""
    [line] = _lines(found, "bytes")

    assert line["status"] == "ok"
    assert int(line["text"].split()[0]) >= 15
    assert found["facts"]["bytes_that_differ"] == {}


@needs_dsl
@needs("rich")
def test_switched_off_needs_attention():
    """With SCALARINTERN=0 the exit code is 1, and the line says to unset it."""
    done = command("doctor", SCALARINTERN="0")

    assert done.returncode == 1
    assert "unset SCALARINTERN" in done.stdout
    assert "SCALARINTERN=0" in done.stdout
    assert len(done.stdout.splitlines()) <= 24


def test_differences_are_found():
    """Bytes, types, errors or warnings that are not those of stock are reported by class."""
    stock = {"Int32": {"1": ["01000000 c_void_p"] * 2, "2": ["02 c"] * 2}}
    interned = {"Int32": {"1": ["01000000 c_void_p", "00000000 c_void_p"], "2": ["02 c"] * 2}}

    assert diagnosis.differences(stock, stock) == {}
    assert diagnosis.differences(stock, interned) == {
        "Int32": {"1": ["01000000 c_void_p", "01000000 c_void_p", "00000000 c_void_p"]}
    }
    assert set(diagnosis.differences(stock, {})) == {"Int32"}


@pytest.mark.parametrize(
    ("record", "todo"),
    [
        ({"installed": False, "reason": "strange"}, "upgrade scalarintern"),
        (
            {
                "installed": True,
                "patched": ["a"],
                "applied_by_import": True,
                "left_alone": {"Int8.__c_pointers__": "replaced by someone, or its own"},
            },
            "import scalarintern before",
        ),
        (
            {"installed": True, "patched": ["a"], "applied_by_import": False, "left_alone": {}},
            "call scalarintern.install()",
        ),
    ],
)
def test_what_needs_attention_says_what_to_do(record, todo, monkeypatch):
    """Each line that needs attention carries advice."""
    monkeypatch.delenv("SCALARINTERN", raising=False)

    lines = list(diagnosis._adapter({"adapter": record, "warnings": []}))

    [line] = [line for line in lines if line.status == diagnosis.ATTENTION]
    assert todo in line.todo
