"""Canonical scalars, weakly held, each with one ctypes buffer made once.

Words: a *payload* is the Python ``bool``, ``int`` or ``float`` in a scalar; a
*key* names a payload bit-exactly; a *launch pointer* is a ``ctypes.c_void_p``
that addresses a buffer and owns it.

Who holds what
    A :class:`ScalarTable` belongs to one class and is held by that class alone,
    so nothing here keeps a class alive. It has two stores, one of canonical
    scalars and one of launch pointers, each a weak table by key. The weak
    reference to a scalar holds the pointer, so that a live scalar keeps one
    buffer for life with nothing stored on it.

    The *retained tier* of a store holds what was used lately strongly, in
    generations. What is new or found again goes into the young one; when the
    young ones of all classes are full together, all move down by one and the
    oldest are dropped. The young generation is a plain dict, and looking there
    is the whole of a hit: nothing is written. Past three quarters of ``retain``
    new keys without a use, a key is dropped.

Where atomicity comes from
    Identity rests on ``dict.setdefault`` with keys of built-in types, one
    indivisible step with and without a GIL, not on a lock. Nothing waits:
    retaining needs a claim, and a thread that finds it taken, or a finalizer
    that comes back in from a collection, just does not retain that once.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import sys
import threading
import warnings
import weakref
from ctypes import addressof, c_void_p

# The compare-and-delete that weakref.WeakValueDictionary itself is built on.
from _weakref import _remove_dead_weakref
from math import copysign
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union

import attrs

from .errors import (
    ConfigurationError,
    EncoderError,
    NotAScalarClassError,
    UnsupportedValueError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ClassStats",
    "Finding",
    "RegistryStats",
    "ScalarRegistry",
    "ScalarTable",
    "buffer_of",
    "encoded_pointer",
    "key_of",
    "own",
    "payload_of",
]

_T = TypeVar("_T")
Payload = Union[bool, int, float]
Key = Union[int, float, bytes, str]

_pack_double: Final = struct.Struct("<d").pack
_unpack_double: Final = struct.Struct("<d").unpack
_slot_numbers: Final = itertools.count()

#: Generations of the retained tier, see :meth:`ScalarRegistry.configure`.
GENERATIONS: Final = 4


def key_of(payload: object, kind: type | None = None) -> Key | None:
    """Return the bit-exact key of a payload, or None if it is no plain number.

    An ``int`` is its own key, and so is a ``float`` in a class of floats where
    equal means the same bits. Everything else is spelled out, so that nothing
    meets by ``==``: zeros, NaNs and other floats as their 8 bytes, a ``bool`` as
    one byte, an ``int`` in a class of floats in hexadecimal.
    """
    exact = type(payload)
    if exact is int:
        return hex(payload) if kind is float else payload  # type: ignore[call-overload, no-any-return]
    if exact is float:
        if kind is float and payload and payload == payload:
            return payload  # type: ignore[return-value]
        return _pack_double(payload)
    if exact is bool:
        return b"\x01" if payload else b"\x00"
    return None


def payload_of(key: Key) -> Payload:
    """Return the payload that :func:`key_of` made ``key`` from."""
    if isinstance(key, str):
        return int(key, 16)
    if isinstance(key, bytes):
        payload: Payload = bool(key[0]) if len(key) == 1 else _unpack_double(key)[0]
        return payload
    return key


def own(pointer: ctypes.c_void_p, buffer: Any) -> ctypes.c_void_p:
    """Make ``pointer`` keep ``buffer`` alive, with no cycle, and return it."""
    pointer._scalarintern_buffer = buffer  # type: ignore[attr-defined]
    return pointer


def buffer_of(pointer: ctypes.c_void_p) -> Any:
    """Return the ctypes object that ``pointer`` addresses and owns, or None."""
    for held in vars(pointer).values():
        try:
            if ctypes.addressof(held) == pointer.value:
                return held
        except TypeError:
            continue
    return None


def encoded_pointer(encoded: object, nbytes: int | None = None) -> ctypes.c_void_p:
    """Return a launch pointer to a fresh buffer that holds ``encoded``.

    Args:
        encoded: What an encoder returned: ``bytes``, not empty.
        nbytes: The length it must have, in bytes, where that is known.

    Raises:
        EncoderError: It is no ``bytes``, is empty, or has another length.
    """
    if type(encoded) is not bytes or not encoded:
        found = "no bytes" if encoded == b"" else f"a {type(encoded).__name__}"
        raise EncoderError(f"the encoder returned {found}; return the scalar's bytes")
    if nbytes is not None and len(encoded) != nbytes:
        raise EncoderError(
            f"the encoder returned {len(encoded)} bytes where the class has {nbytes}; "
            f"return exactly {nbytes}"
        )
    buffer = ctypes.create_string_buffer(encoded, len(encoded))
    return own(ctypes.c_void_p(ctypes.addressof(buffer)), buffer)


def _bytes_at(pointer: ctypes.c_void_p) -> bytes:
    return bytes(buffer_of(pointer) or b"")


class _Entry(weakref.ref[_T]):
    """A weak reference that knows its key and owns what must live as long.

    Attributes:
        key: The key it stands under.
        kept: Of a scalar, its launch pointer; of a pointer whose payload is not
            quiet, the bytes it should have.
    """

    __slots__ = ("kept", "key")

    key: Key
    kept: Any


class _Tally:
    """A counter that counts right from any thread, with and without a GIL."""

    __slots__ = ("_base", "_looks", "tick")

    def __init__(self) -> None:
        ticks = itertools.count()
        self._looks = itertools.count()
        self._base = 0
        self.tick = ticks.__next__

    def reset(self) -> None:
        self._base += self.value()

    def value(self) -> int:
        # Looking ticks too; what looking added is taken off again.
        return self.tick() - next(self._looks) - self._base


class _Clock:
    """Bounds what the stores of one kind retain together, over all classes.

    Whoever changes what is retained claims the clock first, and leaves it be if
    it is taken. A claim is one ``setdefault`` inside the ``try`` that ends it: a
    signal between two steps cannot leave it taken, as it can with a lock.

    Attributes:
        tick: Counts what enters the young generations.
        limit: The count at which the generations move.
        plain: Whether there is nothing to see to but that: something is
            retained, and hits are not counted.
    """

    def __init__(self, stores: Callable[[], list[_Store[Any]]]) -> None:
        self.stores = stores
        self.claim: dict[int, object] = {}
        self.clear_wanted = False
        self.tick = itertools.count().__next__
        self.limit = 0
        self.plain = True
        self.evicted = 0
        self.depth = 1
        self.share = 0

    def set_bound(self, retain: int) -> None:
        # A small bound is spent on generations of one, to waste none of it; of a
        # large one some is left for threads that enter while another moves.
        self.depth = GENERATIONS if retain >= 16 * GENERATIONS else max(retain, 1)
        self.share = (retain - retain // 64) // self.depth
        self.limit = self.tick() + self.share

    def move(self) -> None:
        """Move the generations, unless another is at it."""
        claim = self.claim
        token = object()
        dropped = None  # outlives the claim: its end may run anybody's code
        try:
            if claim.setdefault(0, token) is token:
                dropped = self.age()
        finally:
            if claim.get(0) is token:
                del claim[0]
        del dropped
        if self.clear_wanted:
            self.clear()

    def age(self) -> list[Any]:
        """Move all generations down; returns the dropped. Needs the claim."""
        dropped: list[Any] = []
        for store in self.stores():
            if store.fast or store.odd or store.older:
                generations = [{**store.fast, **store.odd}, *store.older]
                store.older = generations[: self.depth - 1]
                store.odd = {}
                store.forget_fast()
                for oldest in generations[self.depth - 1 :]:
                    self.evicted += len(oldest)
                    dropped.append(oldest)
        self.limit = self.tick() + self.share
        return dropped

    def clear(self) -> None:
        """Drop all that is retained, or have whoever holds the claim do it."""
        claim = self.claim
        token = object()
        dropped: list[Any] = []
        self.clear_wanted = True
        while self.clear_wanted:
            try:
                if claim.setdefault(0, token) is token:
                    self.clear_wanted = False
                    dropped += [store.forget_retained() for store in self.stores()]
                    self.limit = self.tick() + self.share
                elif claim:
                    return
            finally:
                if claim.get(0) is token:
                    del claim[0]


class _Store(weakref.WeakValueDictionary[Key, _T]):
    """A weak table whose insertion settles races, and its retained tier.

    Attributes:
        refs: The weak references, by key.
        fast: The young generation, by payload, as far as payloads are keys.
        zeros: The float zeros in use, by sign (1.0 or -1.0).
        odd: The rest of the young generation, by key.
        older: The older generations, by key, the youngest first.
    """

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self.refs: dict[Key, Any] = self.data  # type: ignore[assignment]
        self.clock = clock
        self.fast: dict[Any, _T] = {}
        self.zeros: dict[float, _T] = {}
        self.odd: dict[Key, _T] = {}
        self.older: list[dict[Key, _T]] = []
        self.replacing = threading.RLock()
        # Entries of what died. All that a death does is to append to this, in C,
        # as it may come within any other step, on any thread.
        self.dead: list[_Entry[_T]] = []
        self.bury = self.dead.append

    def find(self, key: Key) -> _T | None:
        """Return the live object of ``key``, or None."""
        entry = self.refs.get(key)
        return None if entry is None else entry()

    def settle(
        self, key: Key, fresh: _T, intact: Callable[[_T, Key], bool] | None = None
    ) -> _T:
        """Return the one object of ``key``, which is ``fresh`` if there was none.

        An object that is not ``intact`` any more is replaced.
        """
        entry = _Entry(fresh, self.bury)
        entry.key = key
        refs = self.refs
        while True:
            current = refs.setdefault(key, entry)
            if current is entry:
                return fresh
            other: _T | None = current()
            if other is None:
                _remove_dead_weakref(refs, key)
            elif intact is None or intact(other, key):
                return other
            else:
                with self.replacing:
                    # Compare and store with no call in between, so that nothing
                    # else runs on this thread from the one to the other.
                    try:
                        if refs[key] is current:
                            refs[key] = entry
                    except KeyError:
                        pass
                for generation in self.older:
                    generation.pop(key, None)

    def purge(self) -> None:
        """Remove the keys of what died, where nothing live took its place."""
        dead, refs = self.dead, self.refs
        try:
            while True:
                # An interrupt may have come between making an entry and its key.
                _remove_dead_weakref(refs, getattr(dead.pop(), "key", None))
        except IndexError:
            pass

    def retain(self, key: Key, obj: _T, fast: bool, fresh: bool) -> None:
        """Make ``key`` young; whoever finds the clock claimed leaves it be."""
        clock = self.clock
        claim = clock.claim
        token = object()
        dropped = None  # outlives the claim: its end may run anybody's code
        try:
            if not clock.share or claim.setdefault(0, token) is not token:
                return
            young, other = (self.fast, self.odd) if fast else (self.odd, self.fast)
            if young.get(key) is not obj:
                if key not in young and other.pop(key, None) is None:
                    if clock.tick() >= clock.limit:
                        dropped = clock.age()
                    if not fresh:
                        for generation in self.older:
                            generation.pop(key, None)
                (self.fast if fast else self.odd)[key] = obj
        finally:
            if claim.get(0) is token:
                del claim[0]
        if clock.clear_wanted:
            clock.clear()

    def forget_fast(self) -> None:
        """Empty the dicts that others hold, in place."""
        self.fast.clear()
        self.zeros.clear()

    def slow_down(self) -> None:
        """Take the young generation out of the way of hits, retained as it is."""
        for key, obj in list(self.fast.items()):
            self.odd[key] = obj
        self.forget_fast()

    def forget_retained(self) -> list[Any]:
        """Let go of the retained tier; returns it, for the caller to drop."""
        dropped = [self.odd, list(self.fast.values()), *self.older]
        self.odd = {}
        self.older = []
        self.forget_fast()
        return dropped

    def retained(self) -> int:
        return len(self.fast) + len(self.odd) + sum(map(len, self.older))

    def live(self) -> list[tuple[_Entry[_T], _T]]:
        """Return what is alive at this moment."""
        self.purge()
        pairs = ((entry, entry()) for entry in list(self.refs.values()))
        return [(entry, found) for entry, found in pairs if found is not None]


class ScalarTable:
    """What a registry knows of one class: its scalars and its launch pointers.

    Attributes:
        cls: The class.
        marshal: Makes a launch pointer of a payload; None if the class has none
            of its own.
        ctype: The ctypes type that makes the same buffer as ``marshal``, of a
            quiet payload of the class's kind; None if there is none.
        source: The table whose ``marshal`` and pointers the class's scalars use:
            this one, or a base class's.
        kind: The payload type that the fast dicts take, ``int`` or ``float``.
        quiet: Whether neither making a scalar of a payload nor marshalling it
            warns; None if that is so for every payload.
        read: Gets the payload out of a scalar.
        fast_scalars: Payload to canonical scalar, of those used in this
            generation; no float zeros, and no NaN.
        fast_pointers: Payload to launch pointer, likewise.
        zero_scalars: Sign of a float zero, 1.0 or -1.0, to its scalar.
        zero_pointers: Likewise, to its launch pointer.
    """

    __slots__ = (
        "__weakref__",
        "cls",
        "ctype",
        "fast_pointers",
        "fast_scalars",
        "kind",
        "marshal",
        "pointers",
        "quiet",
        "read",
        "scalars",
        "sharers",
        "source",
        "zero_pointers",
        "zero_scalars",
    )

    def __init__(
        self,
        cls: type,
        marshal: Callable[[Any], ctypes.c_void_p] | None,
        registry: ScalarRegistry,
        *,
        kind: type | None = None,
        quiet: Callable[[Any], bool] | None = None,
        read: Callable[[Any], Any] = attrgetter("value"),
        source: ScalarTable | None = None,
        ctype: Callable[[Any], Any] | None = None,
    ) -> None:
        self.cls = cls
        self.ctype = ctype
        self.marshal = marshal
        self.kind = kind
        self.quiet = quiet
        self.read = read
        self.source = self if source is None else source
        self.scalars: _Store[Any] = _Store(registry.scalar_clock)
        self.pointers: _Store[ctypes.c_void_p] = _Store(registry.pointer_clock)
        self.fast_scalars = self.scalars.fast
        self.fast_pointers = self.pointers.fast
        self.zero_scalars = self.scalars.zeros
        self.zero_pointers = self.pointers.zeros
        #: Tables whose scalars use this one's pointers; itself not among them.
        self.sharers: list[weakref.ref[ScalarTable]] = []
        if source is not None:
            source.sharers.append(weakref.ref(self, source.sharers.remove))

    def intact(self, scalar: Any, key: Key) -> bool:
        """Whether nobody wrote another value into a canonical scalar."""
        try:
            current = key_of(self.read(scalar), self.kind)
        except AttributeError:
            return False
        return type(current) is type(key) and current == key


@attrs.frozen
class ClassStats:
    """The part of :class:`RegistryStats` that one class has; same units."""

    live: int
    pointers: int
    retained: int
    retained_pointers: int
    bytes: int


@attrs.frozen
class RegistryStats:
    """What a registry holds and did.

    Attributes:
        misses: Calls that made a new canonical scalar or launch pointer.
        hits: Calls that found one; None unless ``configure(count_hits=True)``.
        bypassed: Calls that had nothing to intern: a trace was open, or the
            value was no plain number.
        live: Canonical scalars alive now, whoever holds them.
        pointers: Launch pointers alive now, whoever holds them.
        retained: Scalars held in the retained tier, at most ``retain``.
        retained_pointers: Launch pointers held in it, at most ``retain``.
        retain: The bound of either.
        evicted: Scalars and pointers that left the retained tier for age.
        bytes: Memory of live scalars, pointers, buffers and tables, in bytes,
            estimated from a sample of each class.
        classes: Per class, by qualified name; empty unless asked for.
    """

    misses: int
    hits: int | None
    bypassed: int
    live: int
    pointers: int
    retained: int
    retained_pointers: int
    retain: int
    evicted: int
    bytes: int
    classes: dict[str, ClassStats] = attrs.field(factory=dict)


@attrs.frozen
class Finding:
    """A buffer that does not hold its key's bytes any more.

    Attributes:
        cls: Qualified name of the class.
        value: The payload whose bytes it should hold.
        expected: The bytes it should hold.
        found: The bytes it held.
        repaired: Whether they were put back.
    """

    cls: str
    value: Payload
    expected: bytes
    found: bytes
    repaired: bool = False


_registries: weakref.WeakSet[ScalarRegistry] = weakref.WeakSet()


def _renew_locks() -> None:
    # Another thread may have been inside at the moment of the fork.
    for registry in list(_registries):
        registry.adopting = threading.RLock()
        for clock in (registry.scalar_clock, registry.pointer_clock):
            clock.claim.clear()
            for store in clock.stores():
                store.replacing = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


class ScalarRegistry:
    """Interns instances of any class that wraps one plain number.

    Args:
        encode: ``encode(cls, payload)`` returns the ``bytes`` of a payload, for
            classes that :meth:`register` gave no encoder of their own.
        retain: Bound of the retained tier: so many scalars, and so many launch
            pointers, over all classes together.

    Raises:
        ConfigurationError: ``retain`` is no ``int`` of 0 or more.

    Safe for threads. After ``intern(cls, v)`` every equal ``(cls, v)``, from any
    thread, gives the same object for as long as it is alive; once it died, an
    equal value may be another object. Buffers are for reading.
    """

    def __init__(
        self,
        encode: Callable[[type, Any], bytes] | None = None,
        *,
        retain: int = 4096,
    ) -> None:
        self._encode = encode
        self._attribute = f"__scalarintern_{next(_slot_numbers)}__"
        self._tables: dict[int, weakref.ref[ScalarTable]] = {}
        self._immutable: dict[type, ScalarTable] = {}
        self._bound = _checked_retain(retain)
        self.scalar_clock = _Clock(lambda: [table.scalars for table in self.tables()])
        self.pointer_clock = _Clock(lambda: [table.pointers for table in self.tables()])
        self._counting = False
        self._set_bound()
        #: Held while a class is given its table, so that it gets but one.
        self.adopting = threading.RLock()
        self._misses = _Tally()
        self._hits = _Tally()
        self._bypassed = _Tally()
        self._seals: list[None] = []
        #: Audit after every so many misses and warn of what differs; 0 is never.
        self.audit_every = 0
        self._audited = 0
        _registries.add(self)

    # -- tables ---------------------------------------------------------------

    def register(
        self,
        cls: type,
        *,
        encode: Callable[[Any], bytes] | None = None,
        nbytes: int | None = None,
        read: Callable[[Any], Any] = attrgetter("value"),
    ) -> ScalarTable:
        """Say how scalars of ``cls`` are read and encoded; returns its table.

        Args:
            cls: A class whose instances can be weakly referenced.
            encode: ``encode(payload)`` returns the bytes of the buffer.
            nbytes: Their length, to hold the encoder to.
            read: Gets the payload out of a scalar; by default its ``value``.

        Raises:
            NotAScalarClassError: ``cls`` is no class, or is registered already.
        """
        if not isinstance(cls, type):
            raise NotAScalarClassError(f"{cls!r} is no class; pass the scalar's class")
        general = self._encode
        marshal: Callable[[Any], ctypes.c_void_p] | None = None
        if encode is not None:
            own_encode = encode

            def marshal(payload: Any) -> ctypes.c_void_p:
                return encoded_pointer(own_encode(payload), nbytes)

        elif general is not None:

            def marshal(payload: Any) -> ctypes.c_void_p:
                return encoded_pointer(general(cls, payload), nbytes)

        with self.adopting:
            if self.table(cls) is not None:
                raise NotAScalarClassError(f"{cls.__qualname__} is registered already")
            return self.adopt(ScalarTable(cls, marshal, self, read=read))

    def adopt(self, table: ScalarTable) -> ScalarTable:
        """Attach a ready table to its class, which alone keeps it alive."""
        number = id(table)
        tables = self._tables

        def forget(_: Any) -> None:
            tables.pop(number, None)

        tables[number] = weakref.ref(table, forget)
        try:
            type.__setattr__(table.cls, self._attribute, table)
        except TypeError:
            self._immutable[table.cls] = table  # built in: it lives as long as we
        return table

    def table(self, cls: type) -> ScalarTable | None:
        """Return the table of exactly ``cls``, or None."""
        table = cls.__dict__.get(self._attribute)
        if table is None and self._immutable:
            table = self._immutable.get(cls)
        return table

    def tables(self) -> list[ScalarTable]:
        """Return the tables of all classes alive now."""
        found = (reference() for reference in list(self._tables.values()))
        return [table for table in found if table is not None]

    def release(self, table: ScalarTable) -> None:
        """Detach ``table`` from its class; pointers handed out stay good."""
        self._tables.pop(id(table), None)
        self._immutable.pop(table.cls, None)
        table.scalars.forget_retained()
        table.pointers.forget_retained()
        if table.cls.__dict__.get(self._attribute) is table:
            type.__delattr__(table.cls, self._attribute)

    # -- interning ------------------------------------------------------------

    def intern(self, cls: type[_T], value: Any) -> _T:
        """Return the canonical scalar of ``cls`` for ``value``.

        ``cls(value)`` is made first, so narrowing, warnings and errors are the
        class's own; what it holds then is the key.

        Raises:
            NotAScalarClassError: Instances of ``cls`` cannot be interned.
            UnsupportedValueError: The instance holds no plain number.
        """
        table = self.table(cls) if isinstance(cls, type) else None
        if table is None:
            with self.adopting:
                table = self.table(cls) if isinstance(cls, type) else None
                if table is None:
                    table = self.register(cls)
        scalar = cls(value)  # type: ignore[call-arg]
        try:
            payload = table.read(scalar)
        except AttributeError as error:
            raise NotAScalarClassError(
                f"a {cls.__qualname__} has no payload to read ({error}); "
                f"register the class with the right read="
            ) from None
        if key_of(payload) is None:
            raise UnsupportedValueError(
                f"{cls.__qualname__}({value!r}) holds a {type(payload).__name__}; "
                f"only bool, int and float are interned"
            )
        try:
            return self.canonical(table, scalar)
        except TypeError as error:
            raise NotAScalarClassError(
                f"a {cls.__qualname__} cannot be weakly referenced ({error}); "
                f'give the class a "__weakref__" slot'
            ) from None

    def pointer(self, scalar: Any) -> ctypes.c_void_p:
        """Return the launch pointer of a scalar's current payload.

        Raises:
            EncoderError: There is no encoder for the class, or what it returned
                cannot be put into a buffer.
            NotAScalarClassError: The class was never interned nor registered.
            UnsupportedValueError: The scalar holds no plain number.
        """
        table = self.table(type(scalar))
        if table is None:
            raise NotAScalarClassError(
                f"{type(scalar).__qualname__} is unknown here; intern or register it first"
            )
        if table.marshal is None:
            raise EncoderError(
                f"no encoder for {table.cls.__qualname__}; pass encode= to the registry "
                f"or to register()"
            )
        payload = table.read(scalar)
        if key_of(payload) is None:
            raise UnsupportedValueError(
                f"the scalar holds a {type(payload).__name__}, which has no bytes"
            )
        return self.launch_pointer(table, payload)

    def canonical(self, table: ScalarTable, scalar: _T, *, fast: bool = False) -> _T:
        """Return the canonical scalar equal to ``scalar``, made by its own class.

        ``scalar`` becomes it if there was none. With ``fast``, equal payloads may
        be answered from ``table.fast_scalars`` without making a scalar at all.
        """
        payload = table.read(scalar)
        key = key_of(payload, table.kind)
        if key is None:
            self._bypassed.tick()
            return scalar
        store = table.scalars
        shared = store.settle(key, scalar, table.intact)
        fresh = shared is scalar
        if fresh:
            # Either this sees the pointer, or who makes it sees the entry.
            pointer = table.source.pointers.find(key)
            if pointer is not None:
                self._attach(table, key, pointer)
            self._missed()
        elif self._counting:
            self._hits.tick()
        fast = fast and not self._counting and not self._seals
        store.retain(key, shared, fast and key is payload, fresh)
        if fast and payload == 0 and type(payload) is float:
            store.zeros[copysign(1.0, payload)] = shared
        if fast and self._seals:  # sealed meanwhile
            store.slow_down()
        return shared

    def launch_pointer(self, table: ScalarTable, payload: Payload) -> ctypes.c_void_p:
        """Return the launch pointer of a plain payload, by ``table``'s marshalling.

        A payload that is not quiet is marshalled every time, for its warnings.
        """
        store = table.pointers
        if type(payload) is table.kind and payload and payload == payload:
            key: Key = payload
        else:
            key = key_of(payload, table.kind)  # type: ignore[assignment]
        quiet = table.quiet is None or table.quiet(payload)
        entry = store.refs.get(key)
        pointer: ctypes.c_void_p | None = entry() if entry is not None and quiet else None
        fresh = False
        if pointer is None:
            if key is payload and quiet and table.ctype is not None:
                buffer = table.ctype(payload)
                made = c_void_p(addressof(buffer))
                made._scalarintern_buffer = buffer  # type: ignore[attr-defined]
            else:
                made = table.marshal(payload)  # type: ignore[misc]
            entry = _Entry(made, store.bury)
            entry.key = key
            if store.refs.setdefault(key, entry) is entry:
                pointer = made
                fresh = True
                self._missed()
            else:
                pointer = store.settle(key, made)
            if not quiet:
                store.refs[key].kept = _bytes_at(made)
        if not fresh and self._counting:
            self._hits.tick()
        # A live scalar keeps its pointer.
        scalar_entry = table.scalars.refs.get(key)
        if scalar_entry is not None:
            scalar_entry.kept = pointer
        if table.sharers:
            for reference in list(table.sharers):
                sharer = reference()
                if sharer is not None:
                    self._attach(sharer, key, pointer)
        fast = quiet and not self._counting
        store.retain(key, pointer, fast and key is payload, fresh)
        if fast and payload == 0 and type(payload) is float:
            store.zeros[copysign(1.0, payload)] = pointer
        return pointer

    def pointer_maker(
        self, table: ScalarTable, low: float = 0.0, high: float = float("inf")
    ) -> Callable[[Any], ctypes.c_void_p]:
        """Return :meth:`launch_pointer` of ``table``, with all on hand for a new value.

        What a value that was never seen costs is what a step counter costs at
        every launch: this is that method, straight for the one case.

        Args:
            table: A table with a ``ctype``.
            low: Least magnitude that is quiet, zero apart; floats only.
            high: Largest one.
        """
        store = table.pointers
        clock = store.clock
        count = clock.tick
        kind = table.kind
        ctype: Any = table.ctype
        refs = store.refs
        scalar_refs = table.scalars.refs
        sharers = table.sharers
        bury = store.bury
        fast = store.fast
        missed = self._misses.tick
        real = kind is float

        def make(payload: Any) -> ctypes.c_void_p:
            if (
                type(payload) is kind
                and clock.plain
                and payload not in refs
                and not sharers
                and (not real or low <= payload <= high or low <= -payload <= high)
                and payload
            ):
                buffer = ctype(payload)
                pointer = c_void_p(addressof(buffer))
                pointer._scalarintern_buffer = buffer  # type: ignore[attr-defined]
                entry = _Entry(pointer, bury)
                entry.key = payload
                if refs.setdefault(payload, entry) is entry:
                    scalar_entry = scalar_refs.get(payload)
                    if scalar_entry is not None:
                        scalar_entry.kept = pointer
                    if count() >= clock.limit:
                        clock.move()
                    fast[payload] = pointer
                    if not missed() & 255:
                        self._look_after()
                    return pointer
            return self.launch_pointer(table, payload)

        return make

    def bypass(self) -> None:
        """Count a call that had nothing to intern."""
        self._bypassed.tick()

    @staticmethod
    def _attach(table: ScalarTable, key: Key, pointer: ctypes.c_void_p) -> None:
        """Make the live scalar of ``key``, if any, keep ``pointer``."""
        entry = table.scalars.refs.get(key)
        if entry is not None:
            entry.kept = pointer

    def _missed(self) -> None:
        if not self._misses.tick() & 255:
            self._look_after()

    def _look_after(self) -> None:
        """Do what is due every 256 misses."""
        self._purge()
        if self.audit_every:
            missed = self._misses.value()
            if missed - self._audited >= self.audit_every:
                self._audited = missed
                self.audit_and_warn()

    def _purge(self) -> None:
        for store in self._stores():
            if store.dead:
                store.purge()

    def _set_bound(self) -> None:
        for clock in (self.scalar_clock, self.pointer_clock):
            clock.set_bound(self._bound)
            clock.plain = not self._counting and clock.share > 0

    def _stores(self) -> list[_Store[Any]]:
        return self.scalar_clock.stores() + self.pointer_clock.stores()

    # -- settings -------------------------------------------------------------

    def configure(self, *, retain: int | None = None, count_hits: bool | None = None) -> None:
        """Change settings; each left out, or None, stays as it is.

        Args:
            retain: Bound of the retained tier: so many scalars, and so many
                launch pointers; 0 retains nothing. What is used again within
                three quarters as many new ones is still there. Lowering it
                empties the tier.
            count_hits: Count hits. All calls take the slow way meanwhile, which
                costs about a microsecond each.

        Raises:
            ConfigurationError: A setting is wrong; nothing was changed.
        """
        if retain is not None:
            retain = _checked_retain(retain)
        if count_hits is not None and not isinstance(count_hits, bool):
            raise ConfigurationError(f"count_hits is {count_hits!r}; pass True or False")
        if retain is not None and retain != self._bound:
            shrinks = retain < self._bound
            self._bound = retain
            self._set_bound()
            if shrinks:
                self.clear()
        if count_hits is not None and count_hits is not self._counting:
            self._counting = count_hits
            for tally in (self._hits, self._misses, self._bypassed):
                tally.reset()
            self._audited = 0
            for clock in (self.scalar_clock, self.pointer_clock):
                clock.plain = not count_hits and clock.share > 0
            for store in self._stores():
                store.slow_down()

    def clear(self) -> None:
        """Empty the retained tier; what others hold stays canonical."""
        self.scalar_clock.clear()
        self.pointer_clock.clear()
        self._purge()

    def seal(self) -> None:
        """Answer no scalar from the fast dicts until :meth:`unseal`; nests."""
        self._seals.append(None)
        for store in self.scalar_clock.stores():
            store.slow_down()

    def unseal(self) -> None:
        """Undo one :meth:`seal`."""
        self._seals.pop()

    def reseal(self, times: int) -> None:
        """Set how often the registry counts as sealed, after a fork."""
        self._seals[:] = [None] * times

    # -- looking --------------------------------------------------------------

    def stats(self, *, per_class: bool = False) -> RegistryStats:
        """Return what the registry holds and did, see :class:`RegistryStats`."""
        classes: dict[str, ClassStats] = {}
        live = live_pointers = retained = retained_pointers = size = 0
        for table in self.tables():
            scalars = [scalar for _, scalar in table.scalars.live()]
            pointers = [pointer for _, pointer in table.pointers.live()]
            row = ClassStats(
                live=len(scalars),
                pointers=len(pointers),
                retained=table.scalars.retained(),
                retained_pointers=table.pointers.retained(),
                bytes=_footprint(table, scalars, pointers),
            )
            live += row.live
            live_pointers += row.pointers
            retained += row.retained
            retained_pointers += row.retained_pointers
            size += row.bytes
            if per_class:
                classes[f"{table.cls.__module__}.{table.cls.__qualname__}"] = row
        return RegistryStats(
            misses=self._misses.value(),
            hits=self._hits.value() if self._counting else None,
            bypassed=self._bypassed.value(),
            live=live,
            pointers=live_pointers,
            retained=retained,
            retained_pointers=retained_pointers,
            retain=self._bound,
            evicted=self.scalar_clock.evicted + self.pointer_clock.evicted,
            bytes=size,
            classes=classes,
        )

    def audit(self, *, repair: bool = False) -> list[Finding]:
        """Compare each live buffer with its key's bytes; returns what differs.

        Args:
            repair: Put the right bytes back.
        """
        findings: list[Finding] = []
        for table in self.tables():
            if table.marshal is None:
                continue
            for entry, pointer in table.pointers.live():
                payload = payload_of(entry.key)
                expected = getattr(entry, "kept", None)
                if expected is None:
                    expected = _bytes_at(table.marshal(payload))
                found = _bytes_at(pointer)
                if found != expected:
                    if repair:
                        ctypes.memmove(buffer_of(pointer), expected, len(expected))
                    name = table.cls.__qualname__
                    findings.append(Finding(name, payload, expected, found, repair))
        return findings

    def audit_and_warn(self) -> None:
        """Audit, and give a RuntimeWarning for each buffer that differs."""
        for finding in self.audit():
            warnings.warn(
                f"the buffer of {finding.cls}({finding.value!r}) holds "
                f"{finding.found.hex()} instead of {finding.expected.hex()}: something "
                f"wrote through its launch pointer; audit(repair=True) puts it right",
                RuntimeWarning,
                stacklevel=2,
            )


def _checked_retain(retain: object) -> int:
    if isinstance(retain, bool) or not isinstance(retain, int) or retain < 0:
        raise ConfigurationError(f"retain is {retain!r}; pass an int of 0 or more")
    return retain


def _footprint(table: ScalarTable, scalars: list[Any], pointers: list[Any]) -> int:
    """Estimate the memory of a table and what it refers to, in bytes."""
    size = sys.getsizeof

    def average(objects: list[Any], measure: Callable[[Any], int]) -> int:
        sample = objects[:: len(objects) // 16 + 1]
        return sum(map(measure, sample)) * len(objects) // len(sample) if sample else 0

    def of_scalar(scalar: Any) -> int:
        held = vars(scalar) if hasattr(scalar, "__dict__") else {}
        return size(scalar) + size(held) + sum(map(size, held.values()))

    def of_pointer(pointer: Any) -> int:
        held = vars(pointer)
        return size(pointer) + size(held) + sum(map(size, held.values()))

    entries = len(scalars) + len(pointers)
    entry_size = size(_Entry(table)) if entries else 0
    stores = (table.scalars, table.pointers)
    containers = [d for s in stores for d in (s.refs, s.fast, s.zeros, s.odd, *s.older)]
    return (
        average(scalars, of_scalar)
        + average(pointers, of_pointer)
        + entries * entry_size
        + sum(map(size, containers))
    )
