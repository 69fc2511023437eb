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
import threading
import warnings
import weakref
from ctypes import addressof, c_void_p
from functools import partial
from math import copysign
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .buffers import (
    COMPACT,
    OFFSET,
    Key,
    Payload,
    buffer_of,
    bytes_at,
    compact_pointer,
    encoded_pointer,
    key_of,
    own,
    payload_of,
)
from .errors import (
    ConfigurationError,
    EncoderError,
    NotAScalarClassError,
    UnsupportedValueError,
)
from .figures import ClassStats, Finding, RegistryStats, footprint
from .store import Clock, Entry, Store, Tally

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
_slot_numbers: Final = itertools.count()


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
        "ledger",
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
        ctype: Any = None,
    ) -> None:
        self.cls = cls
        self.ctype = ctype
        #: What its owner changed in the class, to be undone.
        self.ledger: Any = None
        self.marshal = marshal
        self.kind = kind
        self.quiet = quiet
        self.read = read
        self.source = self if source is None else source
        self.scalars: Store[Any] = Store(registry.scalar_clock)
        self.pointers: Store[ctypes.c_void_p] = Store(registry.pointer_clock)
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
        self.scalar_clock = Clock(lambda: [table.scalars for table in self.tables()])
        self.pointer_clock = Clock(lambda: [table.pointers for table in self.tables()])
        self._counting = False
        self._set_bound()
        #: Held while a class is given its table, so that it gets but one.
        self.adopting = threading.RLock()
        self._misses = Tally()
        self._hits = Tally()
        self._bypassed = Tally()
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
        # No generator: where CPython cannot allocate one it corrupts its frames.
        found = []
        for reference in list(self._tables.values()):
            table = reference()
            if table is not None:
                found.append(table)
        return found

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
        shared: _T = store.settle(key, scalar, table.intact)
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
            sign = copysign(1.0, payload)
            store.zeros[sign] = shared
            if store.find(key) is not shared:  # replaced meanwhile
                store.zeros.pop(sign, None)
        if fast and self._seals:  # sealed meanwhile
            store.slow_down()
        return shared

    def launch_pointer(self, table: ScalarTable, payload: Payload) -> ctypes.c_void_p:
        """Return the launch pointer of a plain payload, by ``table``'s marshalling.

        A payload that is not quiet is marshalled every time, for its warnings.
        """
        store = table.pointers
        key = key_of(payload, table.kind)
        assert key is not None
        quiet = table.quiet is None or table.quiet(payload)
        pointer = store.find(key) if quiet else None
        fresh = False
        if pointer is None:
            if key is payload and quiet and table.ctype is not None:
                made = compact_pointer(table.ctype, payload)
            else:
                made = table.marshal(payload)  # type: ignore[misc]
            pointer = store.settle(key, made)
            fresh = pointer is made
            if not quiet:
                store.refs[key].kept = bytes_at(made, table.ctype)
            if fresh:
                self._missed()
        if not fresh and self._counting:
            self._hits.tick()
        fast = quiet and not self._counting
        store.retain(key, pointer, fast and key is payload, fresh)
        # A live scalar keeps its pointer.
        self._attach(table, key, pointer)
        for reference in list(table.sharers):
            sharer = reference()
            if sharer is not None:
                self._attach(sharer, key, pointer)
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
        tick = clock.tick
        kind: Any = table.kind
        place: Any = table.ctype.from_address
        refs = store.refs
        scalar_refs = table.scalars.refs
        sharers = table.sharers
        bury = store.bury
        fast = store.fast
        missed = self._misses.tick
        real = kind is float
        if not COMPACT:
            return partial(self.launch_pointer, table)

        def make(payload: Any) -> ctypes.c_void_p:
            if (
                payload
                and clock.plain
                and type(payload) is kind
                and not sharers
                and (not real or low <= payload <= high or low <= -payload <= high)
            ):
                pointer = c_void_p()  # as in compact_pointer
                address = addressof(pointer) + OFFSET
                pointer.value = address
                place(address).value = payload
                entry = Entry(pointer, bury)
                entry.key = payload
                if refs.setdefault(payload, entry) is entry:
                    scalar_entry = scalar_refs.get(payload)
                    if scalar_entry is not None:
                        scalar_entry.kept = pointer
                    if tick() < clock.limit or clock.move():
                        fast[payload] = pointer
                    if not missed() & 255:
                        self._look_after()
                    return pointer
            return self.launch_pointer(table, payload)

        return make

    def scalar_maker(
        self,
        table: ScalarTable,
        otherwise: Callable[[Any], Any],
        low: float = 0.0,
        high: float = float("inf"),
    ) -> Callable[[Any], Any]:
        """Return :meth:`canonical` of ``table``, likewise straight for a new scalar.

        The class must be one whose scalars may be answered from the fast dict.
        Whatever else comes, and all while the registry is sealed, goes to
        ``otherwise``.
        """
        store = table.scalars
        clock = store.clock
        tick = clock.tick
        kind: Any = table.kind
        read = table.read
        refs = store.refs
        pointer_refs = table.source.pointers.refs
        bury = store.bury
        fast = store.fast
        seals = self._seals
        missed = self._misses.tick
        real = kind is float

        def adopt(scalar: Any) -> Any:
            payload = read(scalar)
            if (
                type(payload) is kind
                and payload
                and clock.plain
                and not seals
                and (not real or low <= payload <= high or low <= -payload <= high)
            ):
                entry = Entry(scalar, bury)
                entry.key = payload
                if refs.setdefault(payload, entry) is entry:
                    pointer_entry = pointer_refs.get(payload)
                    if pointer_entry is not None:
                        entry.kept = pointer_entry()
                    if tick() < clock.limit or clock.move():
                        fast[payload] = scalar
                        if seals or entry is not refs.get(payload):
                            store.slow_down()  # sealed, or replaced, meanwhile
                            store.odd.pop(payload, None)
                    if not missed() & 255:
                        self._look_after()
                    return scalar
            return otherwise(scalar)

        return adopt

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

    def _stores(self) -> list[Store[Any]]:
        return self.scalar_clock.stores() + self.pointer_clock.stores()

    # -- settings -------------------------------------------------------------

    def configure(self, *, retain: int | None = None, count_hits: bool | None = None) -> None:
        """Change settings; each left out, or None, stays as it is.

        Args:
            retain: Bound of the retained tier: so many scalars, and so many
                launch pointers; 0 retains nothing. What is used again within
                half as many new ones is never lost. Lowering it empties the
                tier.
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

    def sealed(self) -> bool:
        """Whether a trace is open on any thread."""
        return bool(self._seals)

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
                bytes=footprint(table, scalars, pointers),
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
            for key, pointer in table.pointers.live():
                payload = payload_of(key)
                expected = getattr(table.pointers.refs.get(key), "kept", None)
                if expected is None:
                    expected = bytes_at(table.marshal(payload), table.ctype)
                found = bytes_at(pointer, table.ctype)
                if found != expected:
                    if repair:
                        ctypes.memmove(pointer.value or 0, expected, len(expected))
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
