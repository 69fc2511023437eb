"""Weak tables that settle races on one object, and their bounded retained tier."""

from __future__ import annotations

import itertools
import threading
import weakref

# The compare-and-delete that weakref.WeakValueDictionary itself is built on.
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .buffers import Key

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock", "Entry", "Store", "Tally"]

_T = TypeVar("_T")

#: Generations of the retained tier; fewer where it holds fewer keys than that.
GENERATIONS: Final = 4


class Entry(weakref.ref[_T]):
    """A weak reference that knows its key and owns what must live as long.

    Attributes:
        key: The key it stands under.
        kept: Of a scalar, its launch pointer; of a pointer whose payload is not
            quiet, the bytes it should have.
    """

    __slots__ = ("kept", "key")

    key: Key
    kept: Any


class Tally:
    """A counter that counts right from any thread, with and without a GIL."""

    __slots__ = ("_base", "_looks", "tick")

    def __init__(self) -> None:
        ticks = itertools.count()
        self._looks = itertools.count()
        self._base = 0
        self.tick = ticks.__next__

    def reset(self) -> None:
        """Count from zero again."""
        self._base += self.value()

    def value(self) -> int:
        """Return how often :attr:`tick` was called since the last reset."""
        # Looking ticks too; what looking added is taken off again.
        return self.tick() - next(self._looks) - self._base


class Clock:
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

    def __init__(self, stores: Callable[[], list[Store[Any]]]) -> None:
        self.stores = stores
        self.claim: dict[int, object] = {}
        self.clear_wanted = False
        self.refused = 0
        self.tick = itertools.count().__next__
        self.limit = 0
        self.plain = True
        self.evicted = 0
        self.depth = 1
        self.share = 0

    def set_bound(self, retain: int) -> None:
        """Retain at most so much from now on."""
        # Some of it is left for threads that enter while another moves.
        self.depth = min(GENERATIONS, retain) or 1
        self.share = (retain - retain // 64) // self.depth
        self.limit = self.tick() + self.share

    def move(self) -> bool:
        """Move the generations; False if another is at it, and nothing is to enter."""
        claim = self.claim
        token = object()
        dropped = None  # outlives the claim: its end may run anybody's code
        moved = False
        try:
            if claim.setdefault(0, token) is token:
                dropped = self.age()
                moved = True
        finally:
            # No call in here: a signal's handler runs right after one.
            try:
                if claim[0] is token:
                    del claim[0]
            except KeyError:
                pass
        del dropped
        if self.clear_wanted:
            self.clear()
        return moved

    def age(self) -> list[Any]:
        """Move all generations down; returns the dropped. Needs the claim."""
        dropped: list[Any] = []
        for store in self.stores():
            if store.fast or store.odd or any(store.older):
                youngest = store.fast.copy()
                youngest.update(store.odd)
                generations = [youngest, *store.older]
                for oldest in generations[self.depth - 1 :]:
                    self.evicted += len(oldest)
                    dropped.append(oldest)
                kept = generations[: self.depth - 1]
                kept += [{} for _ in range(GENERATIONS - 1 - len(kept))]
                store.older = tuple(kept)
                store.odd = {}
                store.forget_fast()
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
                try:
                    if claim[0] is token:
                        del claim[0]
                except KeyError:
                    pass


class Store(weakref.WeakValueDictionary[Key, _T]):
    """A weak table whose insertion settles races, and its retained tier.

    Attributes:
        refs: The weak references, by key.
        fast: The young generation, by payload, as far as payloads are keys.
        zeros: The float zeros in use, by sign (1.0 or -1.0).
        odd: The rest of the young generation, by key.
        older: The older generations, by key, the youngest first; three of
            them, if need be empty.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.refs: dict[Key, Any] = self.data  # type: ignore[attr-defined]
        self.clock = clock
        self.fast: dict[Any, _T] = {}
        self.zeros: dict[float, _T] = {}
        self.odd: dict[Key, _T] = {}
        self.older: tuple[dict[Key, _T], ...] = ({}, {}, {})
        self.replacing = threading.RLock()
        # Entries of what died. All that a death does is to append to this, in C,
        # as it may come within any other step, on any thread.
        self.dead: list[Entry[_T]] = []
        self.bury = self.dead.append

    def find(self, key: Key) -> _T | None:
        """Return the live object of ``key``, or None."""
        entry = self.refs.get(key)
        return None if entry is None else entry()

    def settle(self, key: Key, fresh: _T, intact: Callable[[_T, Key], bool] | None = None) -> _T:
        """Return the one object of ``key``, which is ``fresh`` if there was none.

        An object that is not ``intact`` any more is replaced.
        """
        entry = Entry(fresh, self.bury)
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
                # What is retained may be the replaced one: see retain.
                for held in (self.fast, self.odd, *self.older):
                    held.pop(key, None)
                self.zeros.clear()

    def purge(self) -> None:
        """Remove the keys of what died, where nothing live took its place."""
        refs, pop = self.refs, self.dead.pop
        try:
            while True:
                _remove_dead_weakref(refs, pop().key)
        except IndexError:
            pass
        except AttributeError:
            self.purge()  # an interrupt came between making an entry and its key

    def retain(self, key: Key, obj: _T, fast: bool, fresh: bool) -> None:
        """Make ``key`` young; whoever finds the clock claimed leaves it be."""
        clock = self.clock
        claim = clock.claim
        token = object()
        dropped = None  # outlives the claim: its end may run anybody's code
        try:
            if not clock.share or claim.setdefault(0, token) is not token:
                clock.refused += 1
                if clock.refused > 1000:
                    # Abandoned: Python 3.10 takes signals between any two steps.
                    clock.refused = 0
                    claim.clear()
                return
            clock.refused = 0
            young, other = (self.fast, self.odd) if fast else (self.odd, self.fast)
            if young.get(key) is not obj:
                if key not in young and other.pop(key, None) is None:
                    if clock.tick() >= clock.limit:
                        dropped = clock.age()
                    if not fresh:
                        for generation in self.older:
                            generation.pop(key, None)
                young = self.fast if fast else self.odd
                young[key] = obj
                # Who replaces an object lets go of it afterwards, and who retains
                # one looks afterwards: one of them sees the other, claim or not.
                if self.find(key) is not obj:
                    young.pop(key, None)
        finally:
            # No call in here: a signal's handler runs right after one.
            try:
                if claim[0] is token:
                    del claim[0]
            except KeyError:
                pass
        del dropped
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
        dropped = [self.odd, dict(self.fast), *self.older]
        self.odd = {}
        self.older = ({}, {}, {})
        self.forget_fast()
        return dropped

    def retained(self) -> int:
        """Return the number of objects in the retained tier."""
        return len(self.fast) + len(self.odd) + sum(map(len, self.older))

    def live(self) -> list[tuple[Key, _T]]:
        """Return what is alive at this moment, by key."""
        self.purge()
        pairs = [(entry.key, entry()) for entry in list(self.refs.values())]
        return [(key, found) for key, found in pairs if found is not None]
