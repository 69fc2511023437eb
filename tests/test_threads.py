"""Identity, pointers and counts with sixteen threads in the registry at once."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import attrs
import hammer
import pytest

import scalarintern
from scalarintern.registry import ScalarRegistry

#: A multiplier of the number of rounds, for long runs.
FACTOR = float(os.environ.get("SCALARINTERN_HAMMER", "1"))
ROUNDS = int(800 * FACTOR)


def nothing_wrong(board):
    """Fail with what the threads saw."""
    assert board.errors == []
    assert dict(board.faults) == {}


class TestPlainRegistry:
    """A registry with no DSL about."""

    @pytest.mark.parametrize("retain", [0, 2, 16, 4096])
    def test_identity_never_splits_under_sixteen_threads(self, retain):
        """Threads that intern and drop the same values never see two objects for one key."""
        registry = ScalarRegistry(hammer.encode, retain=retain)
        board = hammer.hammer(registry, ROUNDS, seed=retain)

        nothing_wrong(board)
        assert board.calls["users"] == ROUNDS * 13

    def test_first_use_of_a_class_from_all_threads_makes_one_table(self):
        """A class first interned by sixteen threads at once gets one table and one object."""
        for turn in range(int(40 * FACTOR)):
            registry = ScalarRegistry(hammer.encode)
            cls = type("New", (hammer.Whole,), {})
            board = hammer.Board()
            value = (7, 2.5)[turn % 2]

            def first(registry=registry, cls=cls, board=board, value=value):
                scalar = registry.intern(cls, value)
                board.compare("scalar", scalar)
                board.compare("pointer", registry.pointer(scalar))

            nothing_wrong(hammer.run_all(board, [first] * hammer.THREADS))
            assert len(registry.tables()) == 1

    def test_classes_made_and_dropped_by_threads_are_collected(self):
        """Classes that threads make, intern with and drop leave no table behind."""
        registry = ScalarRegistry(hammer.encode)
        board = hammer.Board()

        def churn():
            for value in range(20):
                cls = type("Passing", (hammer.Whole,), {})
                board.compare((cls, value), registry.intern(cls, value))
                registry.pointer(registry.intern(cls, value))
                board.held.clear()

        nothing_wrong(hammer.run_all(board, [churn] * 8))
        board.held.clear()
        gc.collect()
        assert registry.tables() == []

    def test_the_bound_holds_once_threads_are_done(self):
        """What sixteen threads leave retained is within the bound, and clear() empties it."""
        registry = ScalarRegistry(hammer.encode, retain=64)
        board = hammer.Board()

        def stream(start):
            def go():
                for value in range(start, start + 400):
                    registry.pointer(registry.intern(hammer.Whole, value))

            return go

        nothing_wrong(hammer.run_all(board, [stream(1000 * n) for n in range(16)]))
        stats = registry.stats()
        assert stats.retained <= 64
        assert stats.retained_pointers <= 64
        assert stats.live == stats.retained
        registry.clear()
        assert registry.stats().live == registry.stats().pointers == 0

    def test_retain_zero_set_by_a_thread_leaves_nothing_behind(self):
        """configure(retain=0) in the thick of it ends with an empty retained tier."""
        for _ in range(int(20 * FACTOR)):
            registry = ScalarRegistry(hammer.encode, retain=8)
            board = hammer.Board()

            def stream(registry=registry):
                for value in range(150):
                    registry.intern(hammer.Whole, value)

            def switch(registry=registry):
                registry.configure(retain=0)

            nothing_wrong(hammer.run_all(board, [stream] * 4 + [switch]))
            assert registry.stats().retained == 0

    def test_counts_are_true_under_load(self):
        """With hits counted, hits and misses add up to the calls, from sixteen threads."""
        registry = ScalarRegistry(hammer.encode, retain=32)
        registry.configure(count_hits=True)
        board = hammer.Board()
        calls = 300

        def work(seed):
            def go():
                draw = random.Random(seed)
                for _ in range(calls):
                    registry.intern(hammer.Whole, draw.randrange(60))

            return go

        nothing_wrong(hammer.run_all(board, [work(n) for n in range(16)]))
        stats = registry.stats()
        assert stats.hits + stats.misses == calls * 16
        assert stats.bypassed == 0
        assert stats.hits > 0
        assert stats.misses >= 60

    def test_runs_on_a_cpython_without_a_gil(self):
        """The same hammering finds nothing on a CPython without a GIL, if one is there."""
        python = os.environ.get("SCALARINTERN_NOGIL_PYTHON") or next(
            filter(None, map(shutil.which, ("python3.14t", "python3.13t"))), None
        )
        if python is None:
            pytest.skip("no CPython without a GIL was found; set SCALARINTERN_NOGIL_PYTHON")
        roots = (Path(scalarintern.__file__).parent.parent, Path(attrs.__file__).parent.parent)
        done = subprocess.run(
            [python, str(Path(hammer.__file__)), str(ROUNDS)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots)), "PYTHON_GIL": "0"},
            capture_output=True,
            text=True,
            timeout=300,
        )

        assert done.returncode == 0, done.stdout + done.stderr
        assert "gil=False" in done.stdout


class TestUnderTheDsl:
    """The numeric classes of the DSL, whose hits look into plain dicts."""

    def test_identity_never_splits_under_sixteen_threads(self, dsl):
        """Int32, Uint8, Float32 and Float64 keep identity and bytes while others meddle."""
        board = hammer.Board()
        classes = (dsl.Int32, dsl.Uint8, dsl.Float32, dsl.Float64)
        values = [(cls, value) for cls in classes[:2] for value in range(30)]
        values += [(cls, value / 4) for cls in classes[2:] for value in range(1, 30)]
        values += [(cls, value) for cls in classes[2:] for value in (0.0, -0.0, float("inf"))]
        formats = dict(zip(classes, ("<i", "<B", "<f", "<d")))

        def encoded(cls, value):
            return struct.pack(formats[cls], value)

        def intern(cls, value):
            return cls.intern(value)

        def pointer_of(scalar):
            [pointer] = scalar.__c_pointers__()
            return pointer

        def use(seed):
            return lambda: hammer.user(
                board, intern, pointer_of, encoded, values, seed, int(500 * FACTOR)
            )

        def clean(seed):
            return lambda: hammer.janitor(board, scalarintern, seed, int(120 * FACTOR))

        def trace():
            for value in range(int(60 * FACTOR)):
                with dsl.ir.Context():
                    fresh = dsl.Int32.intern(value)
                    if dsl.Int32.intern(value) is fresh:
                        board.faults["shared inside a trace"] += 1

        targets = [use(n) for n in range(12)] + [clean(n) for n in range(3)] + [trace]
        nothing_wrong(hammer.run_all(board, targets))
        assert scalarintern.audit() == []

    @pytest.mark.parametrize("name", ["Int32", "Float32"])
    def test_a_value_flipped_while_others_marshal_gives_one_of_its_values(self, dsl, name):
        """Whoever marshals a scalar that another thread writes to gets bytes of one write."""
        cls = getattr(dsl, name)
        number = {"Int32": int, "Float32": float}[name]
        spelled = {"Int32": "<i", "Float32": "<f"}[name]
        values = [number(value) for value in (64, 65, -3, 7)]
        right = {struct.pack(spelled, value) for value in values}
        scalar = cls.intern(values[0])
        board = hammer.Board()
        done = threading.Event()

        def flip():
            turn = 0
            while not done.is_set():
                scalar.value = values[turn % 4]
                turn += 1

        def marshal():
            seen = {}
            for turn in range(int(1500 * FACTOR)):
                [pointer] = scalar.__c_pointers__()
                found = ctypes.string_at(pointer.value, 4)
                if found not in right:
                    board.faults["torn bytes"] += 1
                if seen.setdefault(id(pointer), (pointer, found))[1] != found:
                    board.faults["changed bytes"] += 1
                if turn % 50 == 0:
                    seen.clear()
                    if cls.intern(values[1]).value not in values:
                        board.faults["foreign value"] += 1

        def marshal_all():
            try:
                nothing_wrong(hammer.run_all(hammer.Board(), [marshal] * 8))
            finally:
                done.set()

        nothing_wrong(hammer.run_all(board, [flip, marshal_all]))
        for value in values:
            assert cls.intern(value).value == value

    def test_intern_heals_while_others_write_into_what_is_shared(self, dsl):
        """An intern that overlaps no write of its own thread's value returns that value."""
        board = hammer.Board()

        def vandal(own):
            def go():
                for _ in range(int(300 * FACTOR)):
                    scalar = dsl.Int32.intern(own)
                    scalar.value = own + 1000
                    healed = dsl.Int32.intern(own)
                    if healed is scalar or healed.value != own:
                        board.faults["not healed"] += 1
                    scalar.value = own
                    if dsl.Int32.intern(own) is not healed:
                        board.faults["identity splits"] += 1

            return go

        def bystander():
            for _ in range(int(100 * FACTOR)):
                for value in range(500, 510):
                    if dsl.Int32.intern(value).value != value:
                        board.faults["hurt a bystander"] += 1

        targets = [vandal(9000 + n) for n in range(12)] + [bystander] * 4
        nothing_wrong(hammer.run_all(board, targets))

    def test_counts_are_true_under_load(self, dsl):
        """Hits, misses and bypassed calls of the DSL's classes add up to the calls."""
        scalarintern.configure(count_hits=True)
        board = hammer.Board()
        calls = 200

        def work(seed):
            def go():
                draw = random.Random(seed)
                for _ in range(calls):
                    dsl.Int32.intern(draw.randrange(50))
                    dsl.Float32(draw.randrange(50) / 8).__c_pointers__()

            return go

        def trace():
            with dsl.ir.Context():
                for value in range(calls):
                    dsl.Int32.intern(value)

        nothing_wrong(hammer.run_all(board, [work(n) for n in range(12)] + [trace]))
        stats = scalarintern.stats()
        assert stats.hits + stats.misses + stats.bypassed == 12 * calls * 2 + calls
        assert stats.bypassed == calls
        assert sys.getswitchinterval() > 1e-6

    def test_the_bound_holds_while_threads_stream(self, dsl):
        """Threads that marshal and intern new values never hold more retained than the bound."""
        scalarintern.configure(retain=256)
        board = hammer.Board()
        ended = []

        def stream(start):
            def go():
                for value in range(start, start + int(1500 * FACTOR)):
                    dsl.Int64(value).__c_pointers__()
                    dsl.Float32(value / 8).__c_pointers__()
                    dsl.Int64.intern(value)
                ended.append(start)

            return go

        def look():
            while len(ended) < 8 and not board.errors:
                stats = scalarintern.stats()
                if max(stats.retained, stats.retained_pointers) > 256:
                    board.faults["bound exceeded"] += 1

        streams = [stream(n * 10**6) for n in range(1, 9)]
        nothing_wrong(hammer.run_all(board, [*streams, look]))
        stats = scalarintern.stats()
        assert max(stats.retained, stats.retained_pointers) <= 256

    def test_install_and_uninstall_while_others_work(self, dsl):
        """Taking the adapter off and putting it on again disturbs no thread's bytes."""
        board = hammer.Board()

        def work():
            for value in range(int(300 * FACTOR)):
                [pointer] = dsl.Int32(value).__c_pointers__()
                hammer.check_bytes(board, pointer, struct.pack("<i", value))
                [pointer] = dsl.Float32(0.5).__c_pointers__()
                hammer.check_bytes(board, pointer, struct.pack("<f", 0.5))

        def switch():
            for _ in range(5):
                scalarintern.uninstall()
                scalarintern.install()

        nothing_wrong(hammer.run_all(board, [work] * 8 + [switch]))
        assert scalarintern.is_installed()
