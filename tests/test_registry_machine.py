"""A hypothesis machine that drives a ScalarRegistry beside a plain model of it.

``SCALARINTERN_MACHINE_EXAMPLES`` and ``SCALARINTERN_MACHINE_STEPS`` make it longer.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import struct
import weakref

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from scalarintern.errors import ConfigurationError, NotAScalarClassError
from scalarintern.registry import ScalarRegistry

EXAMPLES = int(os.environ.get("SCALARINTERN_MACHINE_EXAMPLES", "30"))
STEPS = int(os.environ.get("SCALARINTERN_MACHINE_STEPS", "80"))
SLOTS = 12


def bits(value):
    """Name a plain number bit-exactly, independently of the registry's keys."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    return type(value).__name__, repr(value)


def encode(cls, payload):
    """Encode any number: a letter for its type, then its bits or its digits."""
    kind, spelled = bits(payload)
    return kind[:1].encode() + (spelled if isinstance(spelled, bytes) else spelled.encode())


def new_class(number, narrow):
    """Make a scalar class of its own, as a program may at any time."""

    class Scalar:
        def __init__(self, value):
            self.value = narrow(value)

    Scalar.__name__ = Scalar.__qualname__ = f"Scalar{number}"
    return Scalar


def to_small(value):
    """Narrow like an 8-bit integer class, so that several inputs share a key."""
    return int(value) & 0xFF if math.isfinite(value) else 0


NARROW = (to_small, float, lambda value: value)
VALUES = st.one_of(
    st.integers(-4, 12),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, -2.5, math.nan, math.inf, True, False]),
    st.sampled_from([struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]]),
    st.integers(-(2**70), 2**70),
)


class RegistryMachine(RuleBasedStateMachine):
    """Holds scalars and pointers in slots and compares them with what must hold."""

    def __init__(self):
        super().__init__()
        gc.collect()
        gc.freeze()  # what was there before makes no collection slower

    def teardown(self):
        """Let the collector see again what was there before."""
        gc.unfreeze()

    @initialize(retain=st.sampled_from([0, 1, 2, 3, 5, 8, 64]))
    def start(self, retain):
        """Make a registry and two classes."""
        self.registry = ScalarRegistry(encode, retain=retain)
        self.retain = retain
        self.made = 0
        self.classes = {}
        self.scalars = {}  # slot -> scalar, all of them held strongly
        self.pointers = {}  # slot -> (class number, bits, pointer, its bytes at first)
        self.canonical = {}  # (class number, bits) -> weak reference to the object
        self.shared = {}  # (class number, bits) -> weak reference to the pointer
        for narrow in NARROW:
            self.classes[self.made] = new_class(self.made, narrow)
            self.made += 1

    # -- the model ------------------------------------------------------------

    def note_scalar(self, number, scalar):
        """Compare a scalar with the live one known for its key, and note it."""
        key = (number, bits(scalar.value))
        known = self.canonical.get(key)
        known = known() if known is not None else None
        if known is not None and bits(known.value) == key[1]:
            assert known is scalar, "two live objects for one key"
        self.canonical[key] = weakref.ref(scalar)

    def note_pointer(self, slot, number, payload, pointer):
        """Compare a pointer with the live one known for its key, and hold it."""
        key = (number, bits(payload))
        known = self.shared.get(key)
        known = known() if known is not None else None
        if known is not None:
            assert known is pointer, "two live pointers for one key"
        self.shared[key] = weakref.ref(pointer)
        self.pointers[slot] = (*key, pointer, encode(None, payload))

    def forget(self, scalar):
        """Hold a scalar in no slot any more."""
        self.scalars = {s: held for s, held in self.scalars.items() if held[1] is not scalar}

    def pick(self, number):
        """Choose one of the classes there are now."""
        return sorted(self.classes)[number % len(self.classes)]

    # -- what a program does --------------------------------------------------

    @rule(slot=st.integers(0, SLOTS - 1), number=st.integers(0, 9), value=VALUES)
    def intern(self, slot, number, value):
        """Intern a value and hold on to the scalar."""
        number = self.pick(number)
        cls = self.classes[number]
        scalar = self.registry.intern(cls, value)
        assert type(scalar) is cls
        assert bits(scalar.value) == bits(cls(value).value)
        assert list(vars(scalar)) == ["value"]
        self.note_scalar(number, scalar)
        self.scalars[slot] = (number, scalar)

    @rule(number=st.integers(0, 9), value=VALUES)
    def intern_in_passing(self, number, value):
        """Intern a value twice and hold on to nothing."""
        number = self.pick(number)
        scalar = self.registry.intern(self.classes[number], value)
        assert self.registry.intern(self.classes[number], value) is scalar
        self.note_scalar(number, scalar)

    @rule(number=st.integers(0, 9), count=st.integers(1, 40), start=st.integers(100, 10**6))
    def stream(self, number, count, start):
        """Let one-off values stream past, which evicts."""
        number = self.pick(number)
        for value in range(start, start + count):
            scalar = self.registry.intern(self.classes[number], value)
            self.note_scalar(number, scalar)
            self.registry.pointer(scalar)

    @rule(slot=st.integers(0, SLOTS - 1))
    def drop(self, slot):
        """Let go of a scalar."""
        self.scalars.pop(slot, None)

    @rule(slot=st.integers(0, SLOTS - 1), into=st.integers(0, SLOTS - 1))
    def take_pointer(self, slot, into):
        """Take the launch pointer of a held scalar."""
        if slot in self.scalars:
            number, scalar = self.scalars[slot]
            pointer = self.registry.pointer(scalar)
            assert type(pointer) is ctypes.c_void_p
            self.note_pointer(into, number, scalar.value, pointer)

    @rule(number=st.integers(0, 9), value=VALUES, into=st.integers(0, SLOTS - 1))
    def take_pointer_of_a_fresh_scalar(self, number, value, into):
        """Take the launch pointer of a scalar that was never interned."""
        number = self.pick(number)
        cls = self.classes[number]
        fresh = cls(value)
        try:
            pointer = self.registry.pointer(fresh)
        except NotAScalarClassError:
            assert self.registry.table(cls) is None
        else:
            self.note_pointer(into, number, fresh.value, pointer)

    @rule(slot=st.integers(0, SLOTS - 1))
    def drop_pointer(self, slot):
        """Let go of a pointer."""
        self.pointers.pop(slot, None)

    @rule(slot=st.integers(0, SLOTS - 1), value=VALUES)
    def write_into(self, slot, value):
        """Write another value into a canonical scalar that others hold as well."""
        if slot in self.scalars:
            number, scalar = self.scalars[slot]
            before = scalar.value
            scalar.value = type(scalar)(value).value
            later = self.registry.intern(type(scalar), before)
            assert bits(later.value) == bits(before)
            self.note_scalar(number, later)
            del later
            # What was written into is not canonical any more, for any key.
            if bits(scalar.value) != bits(before):
                known = self.canonical.get((number, bits(scalar.value)))
                if known is not None and known() is scalar:
                    del self.canonical[number, bits(scalar.value)]
                self.forget(scalar)

    @rule(slot=st.integers(0, SLOTS - 1), value=VALUES)
    def write_and_put_back(self, slot, value):
        """Write into a canonical scalar, intern its old value, and write it back."""
        if slot in self.scalars:
            number, scalar = self.scalars[slot]
            before = scalar.value
            scalar.value = type(scalar)(value).value
            changed = bits(scalar.value) != bits(before)
            meanwhile = self.registry.intern(type(scalar), before)
            scalar.value = before
            assert (meanwhile is scalar) is not changed
            assert self.registry.intern(type(scalar), before) is meanwhile
            if meanwhile is not scalar:
                self.forget(scalar)
                self.canonical[number, bits(before)] = weakref.ref(meanwhile)

    @rule()
    def clear(self):
        """Empty the retained tier."""
        self.registry.clear()
        stats = self.registry.stats()
        assert stats.retained == stats.retained_pointers == 0

    @rule(retain=st.sampled_from([0, 1, 2, 3, 4, 7, 16, 100]))
    def configure(self, retain):
        """Make the retained tier smaller or larger."""
        self.registry.configure(retain=retain)
        self.retain = retain

    @rule(counting=st.booleans())
    def count_hits(self, counting):
        """Switch the counting of hits on or off."""
        self.registry.configure(count_hits=counting)
        hits = self.registry.stats().hits
        assert (hits is not None) is counting

    @rule(retain=st.sampled_from([-1, "x", True, 1.5]))
    def misconfigure(self, retain):
        """Ask for a bound that cannot be; nothing changes."""
        with pytest.raises(ConfigurationError):
            self.registry.configure(retain=retain)

    @rule()
    def collect(self):
        """Run the cyclic collector."""
        gc.collect()

    @precondition(lambda self: len(self.classes) < 6)
    @rule(narrow=st.sampled_from(NARROW), register=st.booleans())
    def make_class(self, narrow, register):
        """Make one more class, and perhaps register it by hand."""
        cls = new_class(self.made, narrow)
        if register:
            self.registry.register(cls)
        self.classes[self.made] = cls
        self.made += 1

    @precondition(lambda self: len(self.classes) > 1)
    @rule(number=st.integers(0, 9))
    def drop_class(self, number):
        """Drop a class and its scalars: it goes, whatever the registry retains."""
        number = self.pick(number)
        reference = weakref.ref(self.classes.pop(number))
        self.scalars = {s: held for s, held in self.scalars.items() if held[0] != number}
        self.canonical = {k: r for k, r in self.canonical.items() if k[0] != number}
        self.shared = {k: r for k, r in self.shared.items() if k[0] != number}
        gc.collect()
        assert reference() is None

    # -- what must hold at any time -------------------------------------------

    @invariant()
    def held_scalars_are_canonical(self):
        """What is held and was not written into is what its value gives."""
        for number, scalar in getattr(self, "scalars", {}).values():
            assert self.canonical[number, bits(scalar.value)]() is scalar
        for number, scalar in list(getattr(self, "scalars", {}).values())[:2]:
            assert self.registry.intern(self.classes[number], scalar.value) is scalar

    @invariant()
    def bytes_stay(self):
        """No pointer's bytes ever change, whatever was evicted."""
        addresses = {}
        for _, _, pointer, expected in getattr(self, "pointers", {}).values():
            assert ctypes.string_at(pointer.value, len(expected)) == expected
            assert addresses.setdefault(pointer.value, pointer) is pointer

    @invariant()
    def bounds_hold(self):
        """The retained tier is within its bound, and the counts add up."""
        if hasattr(self, "registry"):
            stats = self.registry.stats(per_class=True)
            assert stats.retain == self.retain
            assert stats.retained <= self.retain
            assert stats.retained_pointers <= self.retain
            assert stats.live >= len({id(s) for _, s in self.scalars.values()})
            assert stats.live == sum(row.live for row in stats.classes.values())
            assert self.registry.audit() == []


RegistryMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES == 30,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
)


class TestRegistryMachine(RegistryMachine.TestCase):
    """The machine as a test: thousands of steps by default."""
