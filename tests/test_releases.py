"""The throw-away environments: complete or not there."""

from __future__ import annotations

import os
import sys
import time

import pytest

from scalarintern.tools import releases
from scalarintern.tools._child import ToolError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of its own, whose environments are made without a package index."""
    monkeypatch.setenv("SCALARINTERN_CACHE", str(tmp_path))
    built = []

    def build(folder, release, notify):
        built.append(release)
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(releases, "_build", build)
    return tmp_path, built


def _names(folder):
    return [path.name for path in folder.iterdir()]


def test_an_environment_is_made_once(cache):
    """The second call finds the first one's environment."""
    folder, built = cache

    first = releases.environment_python("4.6.1")
    second = releases.environment_python("4.6.1")

    assert first == second
    assert built == ["4.6.1"]
    assert _names(folder) == [first.parents[1].name]


def test_a_build_that_fails_leaves_nothing(cache, monkeypatch):
    """When a step fails, its error is raised and the cache holds neither half nor whole."""
    folder, _ = cache

    def fail(building, release, notify):
        (building / "half").write_text("made")
        raise ToolError("no network")

    monkeypatch.setattr(releases, "_build", fail)

    with pytest.raises(ToolError, match="no network"):
        releases.environment_python("4.6.1")
    assert _names(folder) == []


def test_an_interrupted_build_is_never_used(cache, monkeypatch):
    """An interrupt half-way leaves nothing under the name that is looked for."""
    _, built = cache
    whole = releases._build

    def interrupted(building, release, notify):
        whole(building, release, notify)
        raise KeyboardInterrupt

    monkeypatch.setattr(releases, "_build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        releases.environment_python("4.6.1")
    monkeypatch.setattr(releases, "_build", whole)

    releases.environment_python("4.6.1")

    assert built == ["4.6.1", "4.6.1"]


def test_of_two_builds_at_a_time_the_first_wins(cache, monkeypatch):
    """Another process that finished first keeps its environment; ours goes."""
    folder, _ = cache
    whole = releases._build

    def overtaken(building, release, notify):
        whole(building, release, notify)
        monkeypatch.setattr(releases, "_build", whole)
        theirs = releases.environment_python(release)
        (theirs.parents[1] / "theirs").touch()

    monkeypatch.setattr(releases, "_build", overtaken)

    python = releases.environment_python("4.6.1")

    assert (python.parents[1] / "theirs").exists()
    assert len(_names(folder)) == 1


def test_an_environment_whose_interpreter_is_gone_is_made_anew(cache):
    """After the base interpreter was removed, the environment is replaced."""
    folder, built = cache
    python = releases.environment_python("4.6.1")
    python.unlink()
    python.symlink_to(folder / "no-such-python")

    assert releases.environment_python("4.6.1") == python

    assert built == ["4.6.1", "4.6.1"]
    assert releases._starts(python)
    assert len(_names(folder)) == 1


def test_what_a_killed_build_left_is_removed_after_a_day(cache):
    """Old leftovers are swept; a build that is under way is not."""
    folder, _ = cache
    for name, age in ((".building-old", 90_000), (".building-new", 60)):
        (folder / name).mkdir()
        os.utime(folder / name, (time.time() - age,) * 2)

    releases.environment_python("4.6.1")

    assert ".building-old" not in _names(folder)
    assert ".building-new" in _names(folder)


def test_a_cache_that_cannot_be_written(monkeypatch):
    """The message names the variable that moves the cache."""
    monkeypatch.setenv("SCALARINTERN_CACHE", "/proc/scalarintern")

    with pytest.raises(ToolError, match="set SCALARINTERN_CACHE"):
        releases.environment_python("4.6.1")
