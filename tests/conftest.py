"""Fixtures: the DSL with the adapter applied, and programs run in processes of their own."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import scalarintern

# The DSL keeps traced IR in one folder a user: what a killed run leaves there
# would be in the way of all others.
os.environ.setdefault("CUTE_DSL_DISABLE_FILE_CACHING", "1")

#: Releases that leave a reference cycle at every ``__c_pointers__`` call.
LEAKING = ("4.2.", "4.3.", "4.4.", "4.5.", "4.6.0", "4.6.1")


@pytest.fixture
def dsl() -> Iterator[ModuleType]:
    """Give the DSL's typing module with the adapter applied and its tier empty."""
    typing = pytest.importorskip("cutlass.base_dsl.typing", reason="the DSL is not installed")
    assert scalarintern.install().installed
    scalarintern.clear()
    yield typing
    scalarintern.configure(retain=4096, count_hits=False)
    scalarintern.install()


@pytest.fixture
def collector_off() -> Iterator[None]:
    """Switch the cyclic collector off, with nothing left for it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def release() -> str:
    """Give the release of the DSL, such as 4.6.1."""
    pytest.importorskip("cutlass.base_dsl.typing", reason="the DSL is not installed")
    return scalarintern.install().release


@pytest.fixture(scope="session")
def leaks(release: str) -> bool:
    """Tell whether the installed release leaves cycles, by its number."""
    return release.startswith(LEAKING)


@pytest.fixture
def run_program() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give a function that runs a program text in a fresh interpreter.

    ``stock=True`` keeps the adapter off. Other keywords are environment variables.
    """

    def run(
        text: str,
        *,
        stock: bool = False,
        options: tuple[str, ...] = (),
        check: bool = True,
        **env: Any,
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **{name: str(value) for name, value in env.items()}}
        environment["SCALARINTERN"] = "0" if stock else env.get("SCALARINTERN", "1")
        done = subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(text)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run
