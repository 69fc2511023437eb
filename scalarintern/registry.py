"""Canonical scalars, weakly held, each with one ctypes buffer made once.

Words: a *payload* is the Python ``bool``, ``int`` or ``float`` in a scalar; a
*key* names a payload bit-exactly; a *launch pointer* is a ``ctypes.c_void_p``
that addresses a buffer and owns it.

Who holds what
    A :class:`ScalarTable` belongs to one class and is held by that class alone,
    so nothing here keeps a class alive. Its two weak tables map a key to the
    canonical scalar and to the launch pointer. The weak reference to a scalar
    holds the pointer, so a live scalar keeps one buffer for life with nothing
    stored on it.

    The *retained tier* holds recently used scalars and pointers strongly, in
    generations. A new or re-found key goes into the youngest; when that is full
    all move down by one and the oldest is dropped. In front of it each table
    has plain dicts of what was used since the last move: a hit there writes
    nothing. They are emptied at every move, so that the first use afterwards
    takes the slow way, which marks the key as young again.

Where atomicity comes from
    Identity rests on ``dict.setdefault`` with ``int`` and ``bytes`` keys, one
    indivisible step with and without a GIL, not on a lock. What is locked may
    be skipped: retaining takes its lock without ever waiting, so a finalizer
    that comes back in from a collection, or a thread in the way, just does not
    retain that once.
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
Key = Union[int, bytes]

_pack_double: Final = struct.Struct("<d").pack
_unpack_double: Final = struct.Struct("<d").unpack
_slot_numbers: Final = itertools.count()

#: Generations of the retained tier, see :meth:`ScalarRegistry.configure`.
GENERATIONS: Final = 4


def key_of(payload: object) -> Key | None:
    """Return the bit-exact key of a payload, or None if it is no plain number.

    An ``int`` is its own key; a ``float`` is keyed by its 8 bytes, so that both
    zeros and every NaN payload stay apart; a ``bool`` by one byte.
    """
    kind = type(payload)
    if kind is int:
        return payload  # type: ignore[return-value]
    if kind is float:
        return _pack_double(payload)
    if kind is bool:
        return b"\x01" if payload else b"\x00"
    return None


def payload_of(key: Key) -> Payload:
    """Return the payload that :func:`key_of` made ``key`` from."""
    if isinstance(key, int):
        return key
    payload: Payload = bool(key[0]) if len(key) == 1 else _unpack_double(key)[0]
    return payload


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


def _always(_payload: Payload) -> bool:
    return True


class _Entry(weakref.ref[_T]):
    """A weak reference that knows its key; one to a scalar owns its pointer."""

    __slots__ = ("expected", "key", "pointer")

    key: Key
    pointer: ctypes.c_void_p | None
    expected: bytes | None


class _WeakTable(weakref.WeakValueDictionary[Key, _T]):
    """A WeakValueDictionary whose insertion settles races on one object."""

    def __init__(self) -> None:
        super().__init__()
        data: Any = self.data

        def forget(entry: Any, remove: Any = _remove_dead_weakref) -> None:
            # Removes the key only while what it maps to is dead. In C throughout:
            # it may run within any other step, on any thread.
            remove(data, entry.key)

        self._forget = forget
        self._replacing = threading.RLock()

    def find(self, key: Key) -> _T | None:
        """Return the live object of ``key``, or None."""
        entry: Any = self.data.get(key)
        return None if entry is None else entry()

    def settle(
        self, key: Key, fresh: _T, intact: Callable[[_T], bool] | None = None
    ) -> tuple[_T, _Entry[_T]]:
        """Return the one object of ``key``, which is ``fresh`` if there was none.

        An object that is not ``intact`` any more is replaced.
        """
        entry = _Entry(fresh, self._forget)
        entry.key = key
        entry.pointer = entry.expected = None
        data: Any = self.data
        while True:
            current = data.setdefault(key, entry)
            if current is entry:
                return fresh, entry
            other = current()
            if other is None:
                _remove_dead_weakref(data, key)
            elif intact is None or intact(other):
                return other, current
            else:
                with self._replacing:
                    # Compare and store with no call in between, so that nothing
                    # else runs on this thread from the one to the other.
                    try:
                        if data[key] is current:
                            data[key] = entry
                    except KeyError:
                        pass

    def entries(self) -> list[_Entry[_T]]:
        """Return the entries of this moment, live or dying."""
        return list(self.data.values())  # type: ignore[arg-type]


class ScalarTable:
    """What a registry knows of one class: its weak tables and its retained tier.

    Attributes:
        cls: The class.
        kind: The payload type the fast dicts take: ``int``, ``float`` or ``bool``.
        fast_scalars: Payload to canonical scalar, as used in this generation.
        fast_pointers: Payload to launch pointer, likewise; for ``0.0`` it holds
            None, and ``zero_pointers`` maps the sign (1.0 or -1.0) to the pointer.
    """

    __slots__ = (
        "__weakref__",
        "cls",
        "fast_pointers",
        "fast_scalars",
        "generations",
        "kind",
        "marshal",
        "pointers",
        "quiet",
        "read",
        "scalars",
        "sharers",
        "zero_pointers",
    )

    def __init__(
        self,
        cls: type,
        marshal: Callable[[Any], ctypes.c_void_p] | None,
        *,
        kind: type | None = None,
        quiet: Callable[[Any], bool] = _always,
        read: Callable[[Any], Any] = attrgetter("value"),
    ) -> None:
        self.cls = cls
        self.marshal = marshal
        self.kind = kind
        self.quiet = quiet
        self.read = read
        self.scalars: _WeakTable[Any] = _WeakTable()
        self.pointers: _WeakTable[ctypes.c_void_p] = _WeakTable()
        self.fast_scalars: dict[Any, Any] = {}
        self.fast_pointers: dict[Any, ctypes.c_void_p | None] = {}
        self.zero_pointers: dict[float, ctypes.c_void_p] = {}
        self.generations: list[dict[Key, tuple[Any, Any]]] = [{}]
        #: Tables whose scalars marshal through this one; itself among them.
        self.sharers: list[weakref.ref[ScalarTable]] = [weakref.ref(self)]

    def intact(self, scalar: Any, key: Key) -> bool:
        """Whether nobody wrote another value into a canonical scalar."""
        try:
            current = key_of(self.read(scalar))
        except AttributeError:
            return False
        return type(current) is type(key) and current == key

    def forget_fast(self) -> None:
        """Empty the fast dicts, in place, for those who hold them."""
        self.fast_scalars.clear()
        self.fast_pointers.clear()
        self.zero_pointers.clear()


class _Tally:
    """A counter that counts right from any thread, with and without a GIL."""

    __slots__ = ("_looks", "tick")

    def __init__(self) -> None:
        ticks = itertools.count()
        self._looks = itertools.count()
        self.tick = ticks.__next__

    def value(self) -> int:
        # Looking ticks too; what looking added is taken off again.
        return self.tick() - next(self._looks)


@attrs.frozen
class ClassStats:
    """The part of :class:`RegistryStats` that one class has; same units."""

    live: int
    pointers: int
    retained: int
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
        retained: Keys held in the retained tier, at most ``retain``.
        retain: The bound of the retained tier, in keys.
        evicted: Keys that left the retained tier for age.
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
        registry._lock = threading.Lock()
        for table in registry.tables():
            table.scalars._replacing = threading.RLock()
            table.pointers._replacing = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


class ScalarRegistry:
    """Interns instances of any class that wraps one plain number.

    Args:
        encode: ``encode(cls, payload)`` returns the ``bytes`` of a payload, for
            classes that :meth:`register` gave no encoder of their own.
        retain: Bound of the retained tier, in keys over all classes together.

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
        self._lock = threading.Lock()
        self._young = 0
        self._evicted = 0
        self._misses = _Tally()
        self._hits = _Tally()
        self._bypassed = _Tally()
        self._counting = False
        self._seals: list[None] = []
        self._set_retain(_checked_retain(retain))
        #: Audit after every so many misses and warn of what differs; 0 is never.
        self.audit_every = 0
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
        if self.table(cls) is not None:
            raise NotAScalarClassError(f"{cls.__qualname__} is registered already")
        general = self._encode
        marshal: Callable[[Any], ctypes.c_void_p] | None = None
        if encode is not None:
            own_encode = encode

            def marshal(payload: Any) -> ctypes.c_void_p:
                return encoded_pointer(own_encode(payload), nbytes)

        elif general is not None:

            def marshal(payload: Any) -> ctypes.c_void_p:
                return encoded_pointer(general(cls, payload), nbytes)

        return self.adopt(ScalarTable(cls, marshal, read=read))

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
        table.forget_fast()
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
        key = key_of(payload)
        if key is None:
            self._bypassed.tick()
            return scalar
        shared, entry = table.scalars.settle(
            key, scalar, lambda other: table.intact(other, key)
        )
        if shared is scalar:
            # Either this sees the pointer or who makes it sees the entry.
            source = self._source(table)
            if source is not None:
                entry.pointer = source.pointers.find(key)
            self._missed()
        elif self._counting:
            self._hits.tick()
        self._retain(table, key, payload, scalar=shared, fast=fast)
        return shared

    def launch_pointer(self, table: ScalarTable, payload: Payload) -> ctypes.c_void_p:
        """Return the launch pointer of a plain payload, by ``table``'s marshalling.

        A payload that is not quiet is marshalled every time, for its warnings.
        """
        key = key_of(payload)
        marshal = table.marshal
        assert key is not None and marshal is not None
        quiet = table.quiet(payload)
        pointer = table.pointers.find(key) if quiet else None
        fresh = None
        if pointer is None:
            fresh = marshal(payload)
            pointer, entry = table.pointers.settle(key, fresh)
            if not quiet and entry.expected is None:
                entry.expected = _bytes_at(fresh)
        for sharer in table.sharers:
            other = sharer()
            scalar_entry: Any = None if other is None else other.scalars.data.get(key)
            if scalar_entry is not None:
                scalar_entry.pointer = pointer
        if pointer is fresh:
            self._missed()
        elif self._counting:
            self._hits.tick()
        self._retain(table, key, payload, pointer=pointer, fast=quiet)
        return pointer

    def bypass(self) -> None:
        """Count a call that had nothing to intern."""
        self._bypassed.tick()

    def _source(self, table: ScalarTable) -> ScalarTable | None:
        """The table whose pointers the scalars of ``table`` marshal to."""
        for cls in table.cls.__mro__:
            source = self.table(cls)
            if source is not None and source.marshal is not None:
                return source
        return None

    def _missed(self) -> None:
        missed = self._misses.tick()
        if self.audit_every and missed and missed % self.audit_every == 0:
            self.audit_and_warn()

    # -- the retained tier ----------------------------------------------------

    def _retain(
        self,
        table: ScalarTable,
        key: Key,
        payload: Any,
        *,
        scalar: Any = None,
        pointer: ctypes.c_void_p | None = None,
        fast: bool = False,
    ) -> None:
        """Mark a key as used now; whoever finds the lock taken leaves it be."""
        if not self._share or not self._lock.acquire(blocking=False):
            return
        dropped: list[Any] = []  # outlives the lock: its end may run user code
        try:
            slot = table.generations[0].get(key)
            if slot is None:
                for older in table.generations[1:]:
                    slot = older.pop(key, None)
                    if slot is not None:
                        break
                if self._young >= self._share:
                    self._age(dropped)
                self._young += 1
            if slot is not None:
                scalar = slot[0] if scalar is None else scalar
                pointer = slot[1] if pointer is None else pointer
            table.generations[0][key] = (scalar, pointer)
            if not fast or self._counting or type(payload) is not table.kind:
                return
            if payload != payload:
                return  # a NaN finds itself by identity only: it would pile up
            if scalar is not None and not self._seals:
                table.fast_scalars[payload] = scalar
                if self._seals:
                    table.fast_scalars.clear()
            if pointer is None:
                return
            if payload == 0 and table.kind is float:
                table.zero_pointers[copysign(1.0, payload)] = pointer
                table.fast_pointers[payload] = None
            else:
                table.fast_pointers[payload] = pointer
        finally:
            self._lock.release()

    def _age(self, dropped: list[Any]) -> None:
        """Move every generation down by one; the caller holds the lock."""
        for table in self.tables():
            generations = table.generations
            if any(generations):
                table.generations = [{}, *generations[: self._depth - 1]]
                for oldest in generations[self._depth - 1 :]:
                    dropped.append(oldest)
                    self._evicted += len(oldest)
                table.forget_fast()
        self._young = 0

    def _set_retain(self, retain: int) -> None:
        self._bound = retain
        self._depth = min(GENERATIONS, retain) or 1
        self._share = retain // self._depth

    # -- settings -------------------------------------------------------------

    def configure(self, *, retain: int | None = None, count_hits: bool | None = None) -> None:
        """Change settings; each left out, or None, stays as it is.

        Args:
            retain: Bound of the retained tier, in keys; 0 retains nothing. A key
                used again within ``retain * 3 // 4`` new ones is still there.
                Fewer than held now drops them all.
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
            self._set_retain(retain)
            if shrinks:
                self.clear()
        if count_hits is not None and count_hits is not self._counting:
            self._counting = count_hits
            self._hits = _Tally()
            self._misses = _Tally()
            self._bypassed = _Tally()
            for table in self.tables():
                table.forget_fast()

    def clear(self) -> None:
        """Empty the retained tier; what others hold stays canonical."""
        for table in self.tables():
            table.generations = [{}]
            table.forget_fast()
        self._young = 0

    def seal(self) -> None:
        """Answer no scalar from the fast dicts until :meth:`unseal`; nests."""
        self._seals.append(None)
        for table in self.tables():
            table.fast_scalars.clear()

    def unseal(self) -> None:
        """Undo one :meth:`seal`."""
        self._seals.pop()

    # -- looking --------------------------------------------------------------

    def stats(self, *, per_class: bool = False) -> RegistryStats:
        """Return what the registry holds and did, see :class:`RegistryStats`."""
        classes: dict[str, ClassStats] = {}
        total = [0, 0, 0, 0]
        for table in self.tables():
            scalars = [s for e in table.scalars.entries() if (s := e()) is not None]
            pointers = [p for e in table.pointers.entries() if (p := e()) is not None]
            retained = sum(map(len, table.generations))
            size = _footprint(table, scalars, pointers)
            row = (len(scalars), len(pointers), retained, size)
            total = [a + b for a, b in zip(total, row)]
            if per_class:
                name = f"{table.cls.__module__}.{table.cls.__qualname__}"
                classes[name] = ClassStats(*row)
        live, live_pointers, retained, size = total
        return RegistryStats(
            misses=self._misses.value(),
            hits=self._hits.value() if self._counting else None,
            bypassed=self._bypassed.value(),
            live=live,
            pointers=live_pointers,
            retained=retained,
            retain=self._bound,
            evicted=self._evicted,
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
            for entry in table.pointers.entries():
                pointer = entry()
                if pointer is None:
                    continue
                payload = payload_of(entry.key)
                expected = entry.expected
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
    entry_size = size(next(iter(table.pointers.data.values()), 0)) if entries else 0
    containers = [table.scalars.data, table.pointers.data, *table.generations]
    containers += [table.fast_scalars, table.fast_pointers, table.zero_pointers]
    slots = sum(size(slot) for slot in table.generations[0].values())
    return (
        average(scalars, of_scalar)
        + average(pointers, of_pointer)
        + entries * (entry_size + 40)
        + sum(map(size, containers))
        + slots
    )
