"""Writes the launcher of one signature: straight-line source from arguments to C.

A launcher is ``launch(self, args, kwargs)``. It takes its thread's packed array
away for as long as it runs, so that a launch inside (a user's ``__c_pointers__``,
a finalizer, a signal handler) finds it taken and goes the release's own way.

It runs in two steps. The first only looks: scalars are found in their tables and
packed, and whatever is not understood raises :class:`Defer`, upon which the whole
call is the release's. The second asks the other arguments for their pointers, in
order; from there on nothing is done over again, and what comes out unexpected is
handed to the release's own packing (``finish``).

A scalar slot remembers the number whose pointer is packed in it, and the pointer,
which owns the bytes: the very same number again needs no look-up and no packing.
What else is asked for its pointers is so at every call; of that the slot remembers
the address, if it is an int, which again needs no packing when it is the same.
Besides numbers only a CUDA handle of the bindings themselves is remembered, which
is a small record that owns nothing; no other argument outlives its call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

_F = TypeVar("_F")

__all__ = [
    "HEAD",
    "Adapted",
    "Defer",
    "Foreign",
    "Handle",
    "Lane",
    "Numbers",
    "Option",
    "make",
    "memory",
    "unseen",
]

#: File name of all code that stands between a caller and the release's own. Names
#: in angle brackets the DSL's messages pass over when they look for the user's line;
#: the words in it are those by which warnings pass over the import system's frames.
FILENAME: Final = "<scalarintern launch, unseen like importlib._bootstrap>"

#: Entries of a thread's state before what the slots remember: the packed array
#: (None while in use), a reference to it, and the CUDA result or None.
HEAD: Final = 3

#: What an entry is before it remembers anything; equal to no argument and no address.
NOTHING: Final = object()


def unseen(function: _F) -> _F:
    """Let messages and warnings given below ``function`` name the line of its caller."""
    function.__code__ = function.__code__.replace(co_filename=FILENAME)  # type: ignore[attr-defined]
    return function


class Defer(Exception):
    """This call is the release's; nothing has happened yet."""


@attrs.frozen(eq=False)
class Option:
    """A numeric class that a slot takes.

    Attributes:
        cls: The class.
        raw: Type of the Python numbers that the release makes a ``cls`` of in
            this slot, or None if it makes none.
        payload: Type of payload that the table's fast dict is keyed by.
        fast: That dict.
        miss: ``miss(argument, payload)`` returns the pointer otherwise, or defers.
    """

    cls: type
    raw: type | None
    payload: type
    fast: dict[Any, Any]
    miss: Callable[[Any, Any], Any]


@attrs.frozen
class Numbers:
    """A slot for numbers and scalars; one pointer."""

    options: tuple[Option, ...]


@attrs.frozen
class Handle:
    """A slot for CUDA handles of one type, whose adapter only calls ``getPtr()``.

    Attributes:
        cls: The type.
        constant: Whether a handle always gives the same pointer, to a value in itself.
    """

    cls: type
    constant: bool = False


@attrs.frozen
class Foreign:
    """A slot for objects with a ``__c_pointers__`` of their own.

    Attributes:
        count: Number of pointers.
        cls: Their class, if it is one that has the method as its own; else None,
            and each object is looked at before the first is asked.
    """

    count: int = 1
    cls: type | None = None


@attrs.frozen
class Adapted:
    """A slot whose argument takes the release's own step, adapters and all.

    Attributes:
        count: Number of pointers.
    """

    count: int = 1


Lane = Numbers | Handle | Foreign | Adapted


def memory(lanes: tuple[Lane, ...]) -> list[Any]:
    """Return the entries of a thread's state in which the slots remember."""
    count = 0
    for lane in lanes:
        count += 2 if isinstance(lane, Numbers) else getattr(lane, "count", 1)
    return [NOTHING] * count


def make(
    lanes: tuple[Lane, ...], guard: str, straight: bool, result: bool, names: dict[str, Any]
) -> Any:
    """Return the launcher for ``lanes``.

    Args:
        lanes: What each slot takes, in the order of the parameters.
        guard: Expression of ``self`` and ``names``; while it is true, calls are
            the release's.
        straight: Whether so many positional arguments as slots need no binding.
        result: Whether the compiled function reports a CUDA result.
        names: What the source refers to, besides what ``lanes`` give.
    """
    given = {"NOTHING": NOTHING, **names}
    for i, lane in enumerate(lanes):
        if isinstance(lane, (Handle, Foreign)):
            given[f"C{i}"] = lane.cls
        elif isinstance(lane, Numbers):
            for j, option in enumerate(lane.options):
                suffix = f"{i}" if len(lane.options) == 1 else f"{i}_{j}"
                given[f"C{suffix}"] = option.cls
                given[f"fast{suffix}"] = option.fast
                given[f"miss{suffix}"] = option.miss
    source = _source(lanes, guard, straight, result, tuple(sorted(given)))
    return _compiled(source)(**given)


@functools.lru_cache(maxsize=256)
def _compiled(source: str) -> Any:
    # One code object per shape of signature. The function is taken out of its own
    # globals, which would be a reference cycle.
    namespace: dict[str, Any] = {}
    exec(compile(source, FILENAME, "exec"), namespace)
    return namespace.pop("make")


def _source(
    lanes: tuple[Lane, ...], guard: str, straight: bool, result: bool, given: tuple[str, ...]
) -> str:
    look: list[str] = []
    ask: list[str] = []
    odd: list[str] = []
    parts: list[str] = []  # where finish finds the pointers of each slot
    asked: list[tuple[str, int, int]] = []  # pointers that were asked for, places, entries
    slot, at = HEAD, 0
    for i, lane in enumerate(lanes):
        if isinstance(lane, Numbers):
            look += _look_up(i, lane, slot, at)
            parts.append(f"(packed[{at}],)")
            slot += 2
            at += 1
            continue
        if isinstance(lane, Handle):
            look.append(f"if type(a{i}) is not C{i}: raise Defer")
            if lane.constant:
                ask += [
                    f"if a{i} is not st[{slot}]:",
                    f"    packed[{at}] = a{i}.getPtr()",
                    f"    st[{slot}] = a{i}",
                ]
                parts.append(f"(packed[{at}],)")
            else:
                ask.append(f"p{i} = a{i}.getPtr()")
                parts.append(f"(p{i},)")
                asked.append((f"p{i}", at, slot))
            slot += 1
            at += 1
            continue
        if isinstance(lane, Foreign) and lane.cls is not None:
            look.append(f"if type(a{i}) is not C{i}: raise Defer")
            ask.append(f"c{i} = a{i}.__c_pointers__()")
        elif isinstance(lane, Foreign):
            look += [f"m{i} = a{i}.__c_pointers__", f"if m{i} is None: raise Defer"]
            ask.append(f"c{i} = m{i}()")
        else:
            ask.append(f"c{i} = adapt(a{i}, {i}, keep)")
        parts.append(f"c{i}")
        odd.append(f"type(c{i}) is not list or len(c{i}) != {lane.count}")
        asked += [(f"c{i}[{k}]", at + k, slot + k) for k in range(lane.count)]
        slot += lane.count
        at += lane.count
    finish = f"return finish(self, st, packed, ({', '.join(parts)},))"
    if odd:
        ask += [f"if {' or '.join(odd)}:", f"    {finish}"]
    for pointer, place, entry in asked:
        ask += [
            f"p = {pointer}",
            f"if p is not st[{entry}]:",
            "    if type(p) is int:",
            f"        packed[{place}] = p",
            f"        st[{entry}] = p",
            "    elif type(p) is c_void_p:",
            # Its value may be changed at any time, and it may own the bytes.
            f"        st[{entry}] = NOTHING",
            f"        packed[{place}] = p",
            f"    else: {finish}",
        ]
    if any(isinstance(lane, Adapted) for lane in lanes):
        ask.insert(0, "keep = []")
    names = "".join(f"a{i}, " for i in range(len(lanes)))
    lines = [
        f"def make({', '.join(given)}):",
        "    def launch(self, args, kwargs):",
        "        try:",
        "            st = thread.state",
        "        except AttributeError:",
        "            st = thread.state = fresh()",
        "        packed = st[0]",
        f"        if packed is None or {guard}:",
        "            return stock(self, *args, **kwargs)",
        f"        if kwargs or len(args) != {len(lanes)}:" if straight else "        if True:",
        "            values = bind(args, kwargs)",
        "            if values is None:",
        "                return stock(self, *args, **kwargs)",
        *(
            [f"            {names}= values", "        else:", f"            {names}= args"]
            if names
            else []
        ),
        "        st[0] = None",
        "        try:",
        *_indented(look or ["pass"], 3),
        "        except (Defer, AttributeError):",
        "            st[0] = packed",
        "        except BaseException:",
        "            thread.__dict__.clear()",
        "            raise",
        "        else:",
        "            try:",
        *_indented(ask, 4),
        "                try:",
        "                    capi(st[1])",
        "                except Exception as error:",
        "                    crashed(error)",
        "            except BaseException:",
        "                thread.__dict__.clear()",
        "                raise",
        *(
            [
                "            code = st[2].value",
                "            st[0] = packed",
                "            if code:",
                "                return failed(code)",
                "            return code",
            ]
            if result
            else ["            st[0] = packed", "            return None"]
        ),
        "        return other(self, args, kwargs)",
        "    return launch",
    ]
    return "\n".join(lines) + "\n"


def _indented(lines: list[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]


def _look_up(i: int, lane: Numbers, slot: int, at: int) -> list[str]:
    if len(lane.options) > 1:
        return _look_up_any(i, lane, slot, at)
    (option,) = lane.options
    known = [
        # Of a number that the dict has; a KeyError raised and caught costs as
        # much as all the rest, but then the value is new.
        f"try: p = fast{i}[v]",
        f"except KeyError: p = miss{i}(a{i}, v)",
    ]
    remember = [
        # The number comes last: it is what says that the others are right.
        f"packed[{at}] = p",
        f"st[{slot + 1}] = p",
        f"st[{slot}] = v",
    ]
    payload = option.payload.__name__
    of_scalar = [
        f"v = a{i}.value",
        f"if v is not st[{slot}]:",
        f"    if type(v) is not {payload}: raise Defer",
        *_indented(known + remember, 1),
    ]
    if option.raw is None:
        return [f"if type(a{i}) is not C{i}: raise Defer", *of_scalar]
    lines = [
        f"if a{i} is not st[{slot}]:",
        f"    t = type(a{i})",
    ]
    if option.raw is option.payload:
        lines += [f"    if t is {payload}:", f"        v = a{i}", *_indented(known, 2)]
        lines += _indented(remember, 2)
        lines += [f"    elif t is C{i}:"]
    else:
        lines += [f"    if t is C{i}:"]
    return [
        *lines,
        *_indented(of_scalar, 2),
        "    else:",
        f"        v = a{i}",
        f"        p = miss{i}(v, v)",
        *_indented(remember, 2),
    ]


def _look_up_any(i: int, lane: Numbers, slot: int, at: int) -> list[str]:
    # One number may have several pointers here, so none is remembered.
    lines = [f"t = type(a{i})"]
    word = "if"
    for j, option in enumerate(lane.options):
        payload = option.payload.__name__
        lines += [
            f"{word} t is C{i}_{j}:",
            f"    v = a{i}.value",
            f"    p = fast{i}_{j}.get(v) if type(v) is {payload} else None",
            f"    if p is None: p = miss{i}_{j}(a{i}, v)",
        ]
        word = "elif"
    for j, option in enumerate(lane.options):
        if option.raw is not None:
            lines += [
                f"elif t is {option.raw.__name__}:",
                f"    p = fast{i}_{j}.get(a{i}) if t is {option.payload.__name__} else None",
                f"    if p is None: p = miss{i}_{j}(a{i}, a{i})",
            ]
    lines += ["else:", "    raise Defer", f"packed[{at}] = p", f"st[{slot + 1}] = p"]
    return lines
