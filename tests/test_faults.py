"""Exceptions, interrupts and want of memory in the middle of a miss, and re-entry.

Every fault is followed by the same question: is the registry still consistent?
"""

from __future__ import annotations

import ast
import ctypes
import faulthandler
import gc
import importlib.util
import os
import signal
import struct
import sys
import threading
import weakref
from pathlib import Path

import pytest

import scalarintern
from scalarintern import dsl_adapter
from scalarintern import registry as registry_module
from scalarintern.registry import ScalarRegistry

FACTOR = float(os.environ.get("SCALARINTERN_HAMMER", "1"))


class Injected(Exception):
    """The ordinary exception that is raised where none should be."""


class Whole:
    """A scalar that holds an int, of 8 bytes."""

    def __init__(self, value):
        self.value = int(value)


def encode(cls, payload):
    """Encode an int in 8 bytes."""
    return struct.pack("<q", payload)


@pytest.fixture(autouse=True)
def no_hang():
    """End the run with a traceback where a test hangs, instead of waiting for ever."""
    faulthandler.dump_traceback_later(240, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def frozen():
    """Keep what there is already out of the collections of a test that has many."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


# -- raising at the n-th line ---------------------------------------------------


def final_lines(path):
    """Return the lines of a file's ``finally`` blocks.

    CPython delivers a signal when a call has returned and when a loop turns, and
    the blocks that end a claim do neither; a trace function could raise there all
    the same, where nothing else can.
    """
    lines = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.Try):
            for statement in node.finalbody:
                lines.update(range(statement.lineno, statement.end_lineno + 1))
    return lines


SOURCES = {
    module.__file__: final_lines(module.__file__) for module in (registry_module, dsl_adapter)
}


def raise_at(nth, error, operation):
    """Run ``operation`` and raise ``error`` at its n-th line inside the package.

    Returns whether it came to an n-th line.
    """
    passed = 0

    def line(frame, event, arg):
        nonlocal passed
        if event == "line" and frame.f_lineno not in lines_of(frame):
            passed += 1
            if passed == nth:
                raise error
        return line

    def lines_of(frame):
        return SOURCES[frame.f_code.co_filename.partition(" (")[0]]

    def call(frame, event, arg):
        return line if frame.f_code.co_filename.partition(" (")[0] in SOURCES else None

    raised = []

    def run():
        sys.settrace(call)
        try:
            operation()
        except error:
            pass
        except BaseException as other:
            raised.append(other)
        finally:
            sys.settrace(None)

    # On a thread of its own: where a trace function raises in an ``except`` block,
    # CPython goes on holding the exception that was handled there.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return passed >= nth


class World:
    """A registry in use: some scalars held, some pointers, the retained tier full."""

    def __init__(self, registry, cls, intern, pointer_of, retain):
        self.registry = registry
        self.cls = cls
        self.intern = intern
        self.pointer_of = pointer_of
        self.retain = retain
        registry.clear()
        registry.configure(retain=retain, count_hits=True)
        self.base = registry.stats()
        self.held = {value: intern(value) for value in range(10, 14)}
        self.pointers = {value: pointer_of(intern(value)) for value in range(12, 18)}
        self.bytes = {
            value: ctypes.string_at(pointer.value, 4) for value, pointer in self.pointers.items()
        }
        self.stream(100, 100 + 2 * retain)

    def stream(self, start, stop):
        """Let one-off values pass."""
        for value in range(start, stop):
            self.pointer_of(self.intern(value))

    def is_consistent(self):
        """Fail unless identity, bytes and bounds hold and the tier still retains."""
        for value, scalar in self.held.items():
            assert self.intern(value) is scalar
            assert scalar.value == value
        for value, pointer in self.pointers.items():
            assert self.pointer_of(self.cls(value)) is pointer
            assert ctypes.string_at(pointer.value, 4) == self.bytes[value]
        for value in range(5000, 5003):
            scalar = self.intern(value)
            assert self.intern(value) is scalar
            assert self.pointer_of(scalar) is self.pointer_of(self.cls(value))
        del scalar
        missed = self.registry.stats().misses
        self.pointer_of(self.intern(5002))
        assert self.registry.stats().misses == missed, "the retained tier retains no more"
        self.stream(6000, 6000 + 2 * self.retain)
        stats = self.registry.stats()
        assert stats.retained <= self.retain
        assert stats.retained_pointers <= self.retain
        assert stats.live - self.base.live <= self.retain + len(self.held)
        assert self.registry.audit() == []
        self.registry.clear()
        stats = self.registry.stats()
        assert stats.retained == stats.retained_pointers == 0
        assert stats.live - self.base.live == len(self.held)


def plain_world(retain=8):
    """Give a world of a registry with no DSL."""
    registry = ScalarRegistry(encode, retain=retain)
    return World(
        registry,
        Whole,
        lambda value: registry.intern(Whole, value),
        registry.pointer,
        retain,
    )


def miss(world):
    """Intern a new value."""
    world.intern(777)


def pointer_miss(world):
    """Marshal a new value."""
    world.pointer_of(world.cls(778))


def hit(world):
    """Intern a held value, and marshal it."""
    world.pointer_of(world.intern(12))


def evict(world):
    """Intern and marshal until the generations move."""
    for value in range(800, 800 + world.retain):
        world.pointer_of(world.intern(value))


def replace(world):
    """Intern a value whose canonical scalar somebody wrote into."""
    scalar = world.held.pop(11)
    scalar.value = 4321
    world.intern(11)


def clear(world):
    """Empty the retained tier."""
    world.registry.clear()


def look(world):
    """Read the counts and compare all buffers."""
    world.registry.stats(per_class=True)
    world.registry.audit()


def resize(world):
    """Make the retained tier larger, then as it was."""
    world.registry.configure(retain=world.retain * 2)
    world.registry.configure(retain=world.retain)


OPERATIONS = [miss, pointer_miss, hit, evict, replace, clear, look]


class TestRaisedAnywhere:
    """An exception at each line of an operation leaves the registry consistent."""

    @pytest.mark.parametrize("error", [Injected, KeyboardInterrupt, MemoryError])
    @pytest.mark.parametrize("operation", OPERATIONS, ids=lambda function: function.__name__)
    def test_in_a_plain_registry(self, operation, error):
        """Whatever line of the registry raises, what is held stays canonical."""
        nth = 0
        while True:
            nth += 1
            world = plain_world(4)
            reached = raise_at(nth, error, lambda world=world: operation(world))
            world.is_consistent()
            if not reached:
                break
        assert nth > 3

    @pytest.mark.parametrize("error", [Injected, KeyboardInterrupt])
    @pytest.mark.parametrize("name", ["Int32", "Float32"])
    @pytest.mark.parametrize(
        "operation", [miss, pointer_miss, hit, replace], ids=lambda function: function.__name__
    )
    def test_under_the_dsl(self, dsl, operation, name, error):
        """Whatever line of the adapter or registry raises, the DSL's scalars stay right."""
        cls = getattr(dsl, name)
        number = {"Int32": int, "Float32": float}[name]
        nth = 0
        while True:
            nth += 1
            world = World(
                dsl_adapter.registry,
                cls,
                lambda value: cls.intern(number(value)),
                lambda scalar: cls(number(scalar.value)).__c_pointers__()[0],
                8,
            )
            reached = raise_at(nth, error, lambda world=world: operation(world))
            world.is_consistent()
            del world  # or its scalars would be counted in the next one
            if not reached:
                break
        assert nth > 3

    def test_while_the_bound_changes(self):
        """Whatever line raises while the bound changes, setting it again sets it right."""
        nth = 0
        reached = True
        while reached:
            nth += 1
            world = plain_world()
            reached = raise_at(nth, Injected, lambda world=world: resize(world))
            world.registry.configure(retain=world.retain + 1)
            world.registry.configure(retain=world.retain)
            world.is_consistent()

    @pytest.mark.usefixtures("frozen")
    def test_while_a_class_gets_its_table(self):
        """Whatever line raises at a class's first use, its second use works."""
        nth = 0
        reached = True
        while reached:
            nth += 1
            registry = ScalarRegistry(encode)
            cls = type("First", (Whole,), {})
            reached = raise_at(nth, Injected, lambda r=registry, c=cls: r.intern(c, 5))
            scalar = registry.intern(cls, 5)
            assert registry.intern(cls, 5) is scalar
            assert registry.pointer(scalar) is registry.pointer(cls(5))
            gc.collect()
            assert len(registry.tables()) == 1


def interrupt_misses():
    """Interrupt misses at 1,500 random moments and check what is left."""
    world = plain_world()
    delays = [1e-6 * (5 + turn * 7 % 211) for turn in range(int(1500 * FACTOR))]
    taken = 0

    def interrupt(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    for turn, delay in enumerate(delays):
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            for value in range(turn * 100, turn * 100 + 10**6):
                world.pointer_of(world.intern(10_000 + value))
        except KeyboardInterrupt:
            taken += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert taken == len(delays)
    world.is_consistent()
    print("interrupts taken:", taken)


def test_interrupts_at_any_moment_leave_the_registry_consistent(run_program):
    """Real signals, wherever CPython delivers them within a miss, lose nothing."""
    # In a process of its own: elsewhere one may land in a collector callback.
    path = str(Path(__file__).parent)
    text = f"import sys; sys.path.insert(0, {path!r}); import test_faults as t"

    done = run_program(f"{text}; t.interrupt_misses()")

    assert int(done.stdout.split()[-1]) >= 100


NO_MEMORY = """
import _testcapi, ctypes, gc, os, sys
sys.path[:0] = {path!r}
import test_faults as t

unraisable = []
sys.unraisablehook = unraisable.append
gc.disable()
reached = 0
for operation in (t.miss, t.pointer_miss, t.evict, t.replace):
    start = 0
    while True:
        world = t.plain_world()
        _testcapi.set_nomemory(start, start + 1)
        try:
            operation(world)
            failed = False
        except (MemoryError, SystemError):  # the latter where CPython itself trips
            failed = True
        finally:
            _testcapi.remove_mem_hooks()
        unraisable.clear()
        world.is_consistent()
        reached += failed
        start += 1
        if start > 400 or not failed and start > 120:
            break
print("failed allocations:", reached, flush=True)
os._exit(0)  # what CPython itself lost on the way is no matter at its end
"""


@pytest.mark.skipif(importlib.util.find_spec("_testcapi") is None, reason="no _testcapi here")
def test_want_of_memory_at_each_allocation_leaves_the_registry_consistent(run_program):
    """Each allocation of a miss fails once, in CPython itself, and nothing is lost."""
    done = run_program(NO_MEMORY.format(path=[str(Path(__file__).parent)]))

    assert int(done.stdout.split()[-1]) > 50


# -- coming back in ---------------------------------------------------------------


class Reentrant(Whole):
    """A scalar whose end calls whatever the test put on the class."""

    at_end = staticmethod(lambda value: None)

    def __del__(self):
        self.at_end(self.value)


@pytest.fixture
def ends():
    """Let tests say what the end of a Reentrant scalar does; undone afterwards."""

    def at(function):
        Reentrant.at_end = staticmethod(function)

    yield at
    Reentrant.at_end = staticmethod(lambda value: None)


def reentries(registry):
    """Name what code that comes back in may do."""
    return {
        "interns the same": lambda value: registry.intern(Reentrant, value),
        "interns another": lambda value: registry.intern(Whole, value + 10**6),
        "marshals": lambda value: registry.pointer(registry.intern(Whole, value)),
        "clears": lambda value: registry.clear(),
        "configures": lambda value: registry.configure(retain=4 + value % 5),
        "looks": lambda value: (registry.stats(per_class=True), registry.audit()),
        "collects": lambda value: gc.collect(),
        "raises": lambda value: 1 / 0,
    }


@pytest.fixture
def unraisable(monkeypatch):
    """Take what finalizers raise, and keep nothing of it alive."""
    kinds = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: kinds.append(raised.exc_type))
    return kinds


@pytest.mark.usefixtures("unraisable", "frozen")
class TestReentry:
    """Finalizers, weakref callbacks and collections that come back into the registry."""

    @pytest.mark.parametrize("what", list(reentries(None)))
    def test_a_finalizer_that_comes_back_in(self, ends, what):
        """A scalar's end that uses the registry neither hangs nor splits identity."""
        registry = ScalarRegistry(encode, retain=8)
        comes_back = reentries(registry)[what]
        depth = []

        def at_end(value):
            if len(depth) < 3:  # the end of what it interned itself included
                depth.append(value)
                try:
                    comes_back(value)
                finally:
                    depth.pop()

        ends(at_end)
        held = {value: registry.intern(Reentrant, value) for value in range(5)}
        for value in range(1000, 1200):
            scalar = registry.intern(Reentrant, value)
            registry.pointer(scalar)
            assert registry.intern(Reentrant, value) is scalar
        del scalar

        assert all(registry.intern(Reentrant, value) is held[value] for value in held)
        registry.clear()
        assert registry.stats().retained <= 9
        assert registry.audit() == []
        ends(lambda value: None)
        registry.clear()
        assert registry.stats().live <= len(held) + 1

    @pytest.mark.parametrize("what", list(reentries(None)))
    def test_a_weakref_callback_that_comes_back_in(self, what):
        """A callback on a dying scalar that uses the registry harms nothing."""
        registry = ScalarRegistry(encode, retain=8)
        comes_back = reentries(registry)[what]
        called = []
        references = []
        held = {value: registry.intern(Whole, value) for value in range(5)}
        for value in range(1000, 1100):
            scalar = registry.intern(Whole, value)

            def callback(_, value=value):
                called.append(value)
                comes_back(value)

            references.append(weakref.ref(scalar, callback))
            references.append(weakref.finalize(scalar, comes_back, value))
            del scalar

        registry.clear()
        assert sorted(set(called)) == list(range(1000, 1100))
        assert all(registry.intern(Whole, value) is held[value] for value in held)
        assert registry.audit() == []

    @pytest.mark.parametrize("what", list(reentries(None)))
    def test_a_collection_in_the_middle_of_a_miss(self, ends, what):
        """With a collection at nearly every allocation, garbage that comes back in is harmless."""
        registry = ScalarRegistry(encode, retain=8)
        comes_back = reentries(registry)[what]
        inside = []

        def at_end(value):
            if not inside:
                inside.append(value)
                try:
                    comes_back(value)
                finally:
                    inside.pop()

        ends(at_end)
        threshold = gc.get_threshold()
        gc.set_threshold(1)
        try:
            for value in range(150):
                garbage = Reentrant(value)
                garbage.itself = garbage
                del garbage
                scalar = registry.intern(Whole, value)
                pointer = registry.pointer(scalar)
                assert registry.intern(Whole, value) is scalar
                assert registry.pointer(Whole(value)) is pointer
                assert ctypes.string_at(pointer.value, 8) == encode(Whole, value)
        finally:
            gc.set_threshold(*threshold)
            ends(lambda value: None)
        assert registry.audit() == []
        assert registry.stats().retained <= 12

    def test_an_encoder_that_comes_back_in(self):
        """An encoder that interns and marshals the very value still gives one pointer."""
        inside = []

        def nested(cls, payload):
            if not inside:
                inside.append(1)
                inner.append(registry.pointer(Whole(payload)))
                inside.pop()
            return encode(cls, payload)

        inner = []
        registry = ScalarRegistry(nested)
        scalar = registry.intern(Whole, 5)

        assert registry.pointer(scalar) is inner[0]
        assert registry.stats().pointers == 1

    def test_a_constructor_that_interns_its_own_value(self):
        """A constructor that interns the value it is about to hold still gives one object."""

        class Nested(Whole):
            inside = False

            def __init__(self, value):
                super().__init__(value)
                if not Nested.inside:
                    Nested.inside = True
                    found.append(registry.intern(Nested, value))
                    Nested.inside = False

        found = []
        registry = ScalarRegistry(encode)

        assert registry.intern(Nested, 5) is found[0]

    def test_under_the_dsl(self, dsl):
        """A callback on a dying DSL scalar that interns, marshals and clears harms nothing."""
        scalarintern.configure(retain=8)
        held = dsl.Int32.intern(3)
        kept = dsl.Int32(3).__c_pointers__()[0]
        called = []
        references = []

        def callback(_):
            called.append(dsl.Int32(4).__c_pointers__()[0])
            assert dsl.Int32.intern(3) is held
            dsl.Float32.intern(len(called) / 8)
            scalarintern.clear()

        threshold = gc.get_threshold()
        gc.set_threshold(1)
        try:
            for value in range(100, 200):
                references.append(weakref.ref(dsl.Int32.intern(value), callback))
                references.append(weakref.ref(dsl.Float32(value).__c_pointers__()[0], callback))
            scalarintern.clear()
        finally:
            gc.set_threshold(*threshold)
        assert len(called) == 200
        assert dsl.Int32.intern(3) is held
        assert dsl.Int32(3).__c_pointers__()[0] is kept
        assert scalarintern.audit() == []
