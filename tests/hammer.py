"""Threads that hammer a ScalarRegistry and watch for what must not happen.

Importable by the tests, and a program of its own, so that any other Python can run
it, one without a GIL above all: ``python tests/hammer.py [ROUNDS]``. It needs the
registry and nothing of the DSL or of pytest.
"""

from __future__ import annotations

import ctypes
import gc
import random
import struct
import sys
import threading
from collections import Counter

THREADS = 16


class Whole:
    """A scalar that holds an int, of 8 bytes."""

    def __init__(self, value):
        self.value = int(value)


class Real:
    """A scalar that holds a float, of 8 bytes."""

    def __init__(self, value):
        self.value = float(value)


def encode(cls, payload):
    """Encode a payload of either class."""
    return struct.pack("<q" if isinstance(payload, int) else "<d", payload)


class Board:
    """Holds what threads found, and compares it with what others found.

    Both sides hold what they compare at the moment of comparing, and held it ever
    since they found it, so two that differ are a split identity.
    """

    def __init__(self):
        self.held = {}
        self.faults = Counter()
        self.errors = []
        self.done = []  # appended to, which counts right without a GIL as well

    @property
    def calls(self):
        """Count what threads did, by kind."""
        return Counter(self.done)

    def compare(self, key, found):
        """Put ``found`` on the board, or compare it with what is there."""
        if self.held.setdefault(key, found) is not found:
            self.faults["identity splits"] += 1

    def forget_some(self, draw):
        """Let go of a few things, so that they can die."""
        keys = list(self.held)
        for key in draw.sample(keys, min(8, len(keys))):
            self.held.pop(key, None)


def check_bytes(board, pointer, expected):
    """Compare the bytes that a pointer addresses with those it had at first."""
    if ctypes.string_at(pointer.value, len(expected)) != expected:
        board.faults["changed bytes"] += 1


def user(board, intern, pointer_of, encoded, values, seed, rounds):
    """Intern, hold and drop overlapping values; keep pointers beyond their scalars."""
    draw = random.Random(seed)
    kept = []
    for turn in range(rounds):
        cls, value = draw.choice(values)
        key = (cls, type(value), encoded(cls, value))
        scalar = intern(cls, value)
        board.compare(key, scalar)
        if intern(cls, value) is not scalar:
            board.faults["identity splits"] += 1
        pointer = pointer_of(scalar)
        board.compare((*key, "pointer"), pointer)
        if pointer_of(cls(value)) is not pointer:
            board.faults["pointer splits"] += 1
        kept.append((pointer, key[2]))
        board.done.append("users")
        if turn % 3 == 0:
            check_bytes(board, *kept[draw.randrange(len(kept))])
        if len(kept) > 40:
            del kept[: draw.randrange(1, 30)]
        if turn % 5 == 0:
            board.forget_some(draw)
    for pointer, expected in kept:
        check_bytes(board, pointer, expected)


def janitor(board, registry, seed, rounds):
    """Clear, resize, collect, look and audit while others work."""
    draw = random.Random(seed)
    for _ in range(rounds):
        action = draw.randrange(6)
        if action == 0:
            registry.clear()
        elif action == 1:
            registry.configure(retain=draw.choice((0, 1, 3, 8, 16, 64)))
        elif action == 2:
            gc.collect(draw.randrange(2))
        elif action == 3:
            registry.stats(per_class=True)
        elif action == 4:
            findings = registry.audit()
            if findings:
                board.faults["audit findings"] += len(findings)
        else:
            registry.configure(count_hits=draw.random() < 0.3)
        board.done.append("janitors")


def run_all(board, targets):
    """Run all targets in threads at once; errors go on the board."""
    barrier = threading.Barrier(len(targets))

    def guarded(target):
        barrier.wait()
        try:
            target()
        except BaseException as error:  # whatever it is, the test must hear of it
            board.errors.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return board


def hammer(registry, rounds, seed=1):
    """Run 13 users and 3 janitors over a registry; returns the board."""
    board = Board()
    values = [(Whole, value) for value in range(40)]
    values += [(Real, value / 8) for value in range(1, 40)]
    values += [(Real, 0.0), (Real, -0.0), (Real, float("nan")), (Real, float("inf"))]

    def use(seed):
        return lambda: user(board, registry.intern, registry.pointer, encode, values, seed, rounds)

    def clean(seed):
        return lambda: janitor(board, registry, seed, max(1, rounds // 4))

    targets = [use(seed * 100 + n) for n in range(THREADS - 3)]
    targets += [clean(seed * 100 + 50 + n) for n in range(3)]
    return run_all(board, targets)


def main(rounds=2000):
    """Hammer a registry and say what was found; the exit code is 0 if nothing."""
    from scalarintern.registry import ScalarRegistry

    registry = ScalarRegistry(encode, retain=16)
    board = hammer(registry, rounds)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"gil={gil} calls={dict(board.calls)} faults={dict(board.faults)} {board.errors[:3]}")
    return 1 if board.faults or board.errors else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
