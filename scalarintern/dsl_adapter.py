"""Puts interning under the numeric classes of nvidia-cutlass-dsl, and takes it off.

Everything that knows the DSL is here and in what this imports. Bytes, warnings
and errors are the installed release's own by construction: on a miss its own
method marshals, and the pointer that it returns is the one that is shared.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import sys
import threading
import types
import warnings
from functools import partial
from math import copysign, isinf
from typing import TYPE_CHECKING, Any, Final

import attrs

from . import import_hook, launch
from .errors import (
    NotAScalarClassError,
    NotInstalledError,
    UnknownLayoutError,
    UnknownLayoutWarning,
)
from .ledger import Ledger
from .registry import ScalarRegistry, ScalarTable, buffer_of, own
from .tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "TYPING_MODULE",
    "Installation",
    "audit",
    "clear",
    "configure",
    "dsl_import_begins",
    "install",
    "intern",
    "is_installed",
    "pointer_table",
    "registry",
    "stats",
    "uninstall",
]

#: The module of the DSL that defines its numeric classes.
TYPING_MODULE: Final = "cutlass.base_dsl.typing"
ISSUES: Final = "https://github.com/scalarintern/scalarintern/issues"

#: The one registry of the process.
registry: Final = ScalarRegistry()
stats: Final = registry.stats
audit: Final = registry.audit
clear: Final = registry.clear
configure: Final = registry.configure


@attrs.frozen
class Installation:
    """What :func:`install` did.

    Attributes:
        installed: Whether the adapter is applied.
        release: Release of nvidia-cutlass-dsl, or "unknown".
        location: Folder of the ``cutlass`` package in use.
        patched: What was patched, as ``Class.member``.
        left_alone: What was not, with the reason, by the same names.
        launch: Whether launches take the short way.
        launch_reason: Why they do not; empty if they do.
        reason: Why the adapter is not applied; empty if it is.
    """

    installed: bool
    release: str = "unknown"
    location: str = ""
    patched: tuple[str, ...] = ()
    left_alone: dict[str, str] = attrs.field(factory=dict)
    launch: bool = False
    launch_reason: str = ""
    reason: str = ""


#: Magnitudes, by class name, between which neither construction nor marshalling
#: of a finite value can overflow or underflow, and so warn, on any release.
_QUIET_RANGES: Final[dict[str, tuple[float, float]]] = {
    "Float64": (0.0, sys.float_info.max),
    "Float32": (2.0**-149, 3.4028234663852886e38),
    "TFloat32": (2.0**-149, 3.4028234663852886e38),
    "BFloat16": (2.0**-149, 3.4028234663852886e38),
}
_NARROWEST: Final = (2.0**-24, 65504.0)  # Float16, and any class not known


def _quiet_range(cls: type) -> tuple[float, float]:
    return _QUIET_RANGES.get(cls.__name__, _NARROWEST)


def _quiet(cls: type) -> Callable[[Any], bool]:
    low, high = _quiet_range(cls)

    def quiet(payload: Any) -> bool:
        return (
            type(payload) is not float
            or low <= abs(payload) <= high
            or payload == 0
            or isinf(payload)
            or payload != payload
        )

    return quiet


def _owning(pointer: ctypes.c_void_p) -> ctypes.c_void_p:
    """Return a release's pointer as one that owns its buffer, free of cycles.

    Up to 4.6.1 it comes from ``ctypes.cast(ctypes.pointer(c), c_void_p)``: its
    ``_objects`` hold the intermediate pointer, whose ``_objects`` are the same
    dict (CPython issue bpo-12836). Later ones own their buffer already.
    """
    held: Any = pointer._objects
    if held:
        for buffer in held.values():
            if ctypes.addressof(buffer) == pointer.value:
                held.clear()
                # A new one: with a dict, be it empty, ctypes keeps book of every
                # store of the pointer into an array.
                return own(ctypes.c_void_p(pointer.value), buffer)
        raise UnknownLayoutError("a launch pointer does not hold what it addresses")
    if not vars(pointer):
        raise UnknownLayoutError("a launch pointer does not own its buffer")
    return pointer


def _clone(scalar: Any) -> Any:
    copied = _holding(type(scalar), scalar.value)
    copied._value_int8 = None
    return copied


def _holding(cls: type, payload: Any) -> Any:
    """A scalar nobody else can write to, made past the constructor."""
    scalar: Any = object.__new__(cls)
    scalar.value = payload
    return scalar


def _transparent(function: Any) -> Any:
    """Hide a function's frame from whoever looks for the user's line above the DSL.

    ``warnings.warn(stacklevel=…)`` does not count frames of the import system,
    which CPython knows by two words in their file's name; the DSL's diagnostics
    pass over files in angle brackets, and over modules of its own.
    """
    code = function.__code__.replace(co_filename="<scalarintern, as importlib _bootstrap>")
    hidden = types.FunctionType(
        code,
        {**function.__globals__, "__name__": TYPING_MODULE},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    hidden.__doc__ = function.__doc__
    hidden.__annotations__ = function.__annotations__
    hidden.__qualname__ = function.__qualname__
    hidden.__module__ = function.__module__
    return hidden


class _Adapter:
    """One application of the adapter to one loaded DSL."""

    def __init__(self, typing: Any, *, with_launch: bool) -> None:
        self.typing = typing
        self.ledger = Ledger()
        self.patched: list[str] = []
        self.left_alone: dict[str, str] = {}
        #: DSL class to its table's fast_scalars. Only the DSL module's own
        #: classes are in it, which live as long as the module.
        self.fast: dict[type, dict[Any, Any]] = {}
        self.zeros: dict[type, dict[float, Any]] = {}
        #: DSL class to its constructor's ``__init__`` and its scalar_maker.
        self.straight: dict[type, tuple[Any, Any]] = {}
        self.active = False
        self.with_launch = with_launch
        self.launch_ledger = Ledger()
        self.record = Installation(installed=False)

    # -- applying and undoing -------------------------------------------------

    def apply(self) -> Installation:
        typing = self.typing
        release, location = _release(typing)
        try:
            self._check_layout()
            self._apply_classes()
            self._apply_metaclasses()
            launched = self._apply_launch(release, self.with_launch)
        except Exception as error:
            self.undo()
            if isinstance(error, UnknownLayoutError):
                raise
            raise UnknownLayoutError(f"{type(error).__name__}: {error}") from error
        except BaseException:
            self.undo()
            raise
        self.active = True
        self.record = Installation(
            installed=True,
            release=release,
            location=location,
            patched=tuple(self.patched),
            left_alone=dict(self.left_alone),
            launch=launched.applied,
            launch_reason=launched.reason,
        )
        return self.record

    def set_launch(self, on: bool) -> Installation:
        if on != self.record.launch:
            self._undo_launch()
            launched = self._apply_launch(self.record.release, on)
            self.record = attrs.evolve(
                self.record, launch=launched.applied, launch_reason=launched.reason
            )
        return self.record

    def undo(self) -> list[str]:
        self.active = False
        left = self._undo_launch() + self.ledger.restore()
        for table in registry.tables():
            if table.ledger is not None:
                left += table.ledger.restore()
            registry.release(table)
        self.fast.clear()
        self.zeros.clear()
        self.straight.clear()
        return left

    def _check_layout(self) -> None:
        typing = self.typing
        for name in ("DslType", "NumericMeta", "IntegerMeta", "FloatMeta", "Numeric"):
            if not isinstance(getattr(typing, name, None), type):
                raise UnknownLayoutError(f"{typing.__name__} has no class {name}")
        if not issubclass(typing.IntegerMeta, typing.NumericMeta) or not issubclass(
            typing.FloatMeta, typing.NumericMeta
        ):
            raise UnknownLayoutError("the metaclasses do not derive from NumericMeta")
        if not isinstance(typing.Numeric, typing.NumericMeta):
            raise UnknownLayoutError("Numeric is no NumericMeta class")
        for meta in (typing.NumericMeta, typing.IntegerMeta, typing.FloatMeta):
            if "intern" in meta.__dict__:
                raise UnknownLayoutError(f"{meta.__name__} has an intern of its own")
        context = getattr(getattr(typing, "ir", None), "Context", None)
        if not isinstance(context, type) or not hasattr(context, "current"):
            raise UnknownLayoutError("there is no ir.Context with a current one")
        for name, value, data in (
            ("Int32", 64, b"\x40\0\0\0"),
            ("Float32", 0.125, b"\0\0\0\x3e"),
        ):
            cls = getattr(typing, name, None)
            if not isinstance(cls, typing.NumericMeta):
                raise UnknownLayoutError(f"there is no numeric class {name}")
            try:
                pointer = _marshal_once(cls, value)  # owns what is read
                found = ctypes.string_at(pointer.value or 0, len(data))
            except Exception as error:
                raise UnknownLayoutError(f"{name} does not marshal: {error}") from error
            if found != data:
                raise UnknownLayoutError(f"{name}({value}) marshals to {found.hex()}")

    def _apply_classes(self) -> None:
        self.tracing = Tracing(self.typing.ir, registry)
        for cls in _numeric_classes(self.typing):
            self._cover(cls)
        for name in ("Int32", "Float32"):
            if registry.table(getattr(self.typing, name)) is None:
                why = self.left_alone.get(f"{name}.__c_pointers__", "not found")
                if "its own" not in why and "replaced" not in why:
                    raise UnknownLayoutError(f"{name}.__c_pointers__: {why}")
        self.tracing.apply(self.ledger)
        boolean = self.typing.Boolean
        if "ir_value_int8" in boolean.__dict__:
            self.tracing.keep_int8_values_per_trace(boolean, _clone, self.ledger)
            self.patched.append("Boolean.ir_value_int8")

    def _apply_metaclasses(self) -> None:
        typing = self.typing
        meta = typing.NumericMeta
        before = meta.__dict__.get("__init__")

        def __init__(cls: Any, *args: Any, **kwargs: Any) -> None:
            if before is None:
                super(meta, cls).__init__(*args, **kwargs)
            else:
                before(cls, *args, **kwargs)
            if self.active:
                self._cover(cls)

        self.ledger.patch(meta, "__init__", __init__)
        self.patched.append(f"{meta.__name__}.__init__")
        for owner, kind in (
            (typing.NumericMeta, None),
            (typing.IntegerMeta, int),
            (typing.FloatMeta, float),
        ):
            self.ledger.patch(owner, "intern", self._make_intern(kind))
            self.patched.append(f"{owner.__name__}.intern")

    def _apply_launch(self, release: str, on: bool) -> launch.Applied:
        if not on:
            return launch.Applied(False, "switched off")
        return launch.apply(release, self.pointer_table, self.launch_ledger.patch)

    def _undo_launch(self) -> list[str]:
        launch.retire()
        return self.launch_ledger.restore()

    # -- one class ------------------------------------------------------------

    def _cover(self, cls: type) -> ScalarTable:
        """Give a class its table and, if it has the release's own, our method."""
        typing = self.typing
        name = f"{cls.__qualname__}.__c_pointers__"
        original = cls.__dict__.get("__c_pointers__")
        meta = type(cls)
        kind: type | None = int if issubclass(meta, typing.IntegerMeta) else None
        kind = float if issubclass(meta, typing.FloatMeta) else kind
        marshal = None
        if original is not None:
            if not _is_of(original, typing):
                self._leave(name, "replaced by someone, or the class's own")
            elif kind is not None:
                try:
                    _marshal_once(cls, kind(1), original)
                except Exception as error:
                    if isinstance(error, UnknownLayoutError) and not self.active:
                        raise
                    self._leave(name, f"not marshalled: {type(error).__name__}: {error}")
                else:
                    marshal = _make_marshal(cls, original)
            else:
                self._leave(name, "neither an integer nor a float class")
        table = ScalarTable(
            cls,
            marshal,
            registry,
            kind=kind,
            quiet=_quiet(cls) if kind is float else None,
            source=None if marshal is not None else _inherited(cls),
            ctype=None if self.active else _proved_ctype(kind, marshal, _quiet(cls)),
        )
        registry.adopt(table)
        if marshal is not None:
            # The ledger of a class is held by the class: it must not keep it alive.
            table.ledger = Ledger()
            table.ledger.patch(cls, "__c_pointers__", self._make_c_pointers(table, original))
            if not self.active:
                self.patched.append(name)
        if not getattr(cls, "_is_abstract", False) and _is_of_module(cls, typing):
            self.fast[cls] = table.fast_scalars
            self.zeros[cls] = table.zero_scalars
            init = cls.__init__  # type: ignore[misc]
            if kind is not None and _is_of(init, typing):
                otherwise = partial(self._canonical, cls)
                maker = registry.scalar_maker(table, otherwise, *_quiet_range(cls))
                self.straight[cls] = (init, maker)
        return table

    def _leave(self, name: str, reason: str) -> None:
        if not self.active:  # of classes made later no book is kept
            self.left_alone[name] = reason

    def _make_c_pointers(self, table: ScalarTable, original: Any) -> Any:
        fast = table.fast_pointers
        zeros = table.zero_pointers
        adapter = self

        make: Callable[[Any], ctypes.c_void_p]
        if table.ctype is None:
            make = partial(registry.launch_pointer, table)
        else:
            make = registry.pointer_maker(table, *_quiet_range(table.cls))

        def miss(scalar: Any) -> list[Any]:
            payload: Any = getattr(scalar, "value", None)
            if not adapter.active:
                return original(scalar)  # type: ignore[no-any-return]
            if type(payload) not in (int, float, bool):
                registry.bypass()
                return [_owning(pointer) for pointer in original(scalar)]
            return [make(payload)]

        if table.kind is int:

            def __c_pointers__(self: Any) -> list[Any]:
                payload = self.value
                if type(payload) is int:
                    try:
                        return [fast[payload]]
                    except KeyError:
                        pass
                    if adapter.active:
                        return [make(payload)]
                return miss(self)

        else:

            def __c_pointers__(self: Any) -> list[Any]:
                payload = self.value
                if type(payload) is float:
                    try:
                        return [fast[payload]]
                    except KeyError:
                        pass
                    if not payload:
                        pointer = zeros.get(copysign(1.0, payload))
                        if pointer is not None:
                            return [pointer]
                    if adapter.active:
                        return [make(payload)]
                return miss(self)

        __c_pointers__.__doc__ = original.__doc__
        __c_pointers__.__qualname__ = original.__qualname__
        return __c_pointers__

    def _make_intern(self, kind: type | None) -> Any:
        fast = self.fast
        zeros = self.zeros
        straight = self.straight
        canonical = self._canonical

        def intern(cls: Any, value: Any, /) -> Any:
            """Return the one shared scalar of this class for ``value``.

            The value goes through the class's constructor: same narrowing,
            warnings and errors. While a trace is open, or for an ``ir.Value``,
            an ordinary fresh scalar is returned.

            Raises:
                NotAScalarClassError: The class is abstract.
            """
            exact = type(value)
            # Any plain number may be looked up by ==: what is found says the rest.
            if exact is kind or exact is int or exact is float or exact is bool:
                try:
                    scalar = fast[cls][value]
                    payload = scalar.value
                    # What somebody wrote another value into is not returned.
                    if payload is value or (type(payload) is kind and payload == value):
                        return scalar
                except (KeyError, AttributeError):
                    pass
                known = straight.get(cls)
                if known is not None and cls.__init__ is known[0]:
                    if not value and exact is kind is float:
                        scalar = zeros[cls].get(copysign(1.0, value))
                        if scalar is not None and scalar.value is value:
                            return scalar
                    return known[1](cls(value))
            if getattr(cls, "_is_abstract", False):
                raise NotAScalarClassError(
                    f"{cls.__qualname__} is abstract; intern with a concrete class, "
                    f"such as Int32 or Float32"
                )
            return canonical(cls, cls(value))

        return _transparent(intern)

    def _canonical(self, cls: Any, scalar: Any) -> Any:
        if type(scalar) is not cls or self.tracing.is_open():
            registry.bypass()
            return scalar
        table = registry.table(cls)
        if table is None:  # made behind the metaclass's back, or uninstalled
            if not self.active:
                return scalar
            with registry.adopting:
                table = registry.table(cls) or self._cover(cls)
        fast = cls in self.fast and _is_of(cls.__init__, self.typing)
        return registry.canonical(
            table, scalar, fast=fast and (table.quiet is None or table.quiet(scalar.value))
        )

    def pointer_table(self, cls: type) -> ScalarTable | None:
        table = registry.table(cls)
        return table if table is not None and table.marshal is not None else None


def _inherited(cls: type) -> ScalarTable | None:
    """The table of the base class by whose method ``cls`` marshals, if any."""
    for base in cls.__mro__[1:]:
        if "__c_pointers__" in base.__dict__:
            table = registry.table(base)
            return table if table is not None and table.marshal is not None else None
    return None


def _is_of(function: Any, module: Any) -> bool:
    """Whether a function was written in ``module``, not put in its place later."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == module.__file__


def _is_of_module(cls: type, module: Any) -> bool:
    return getattr(module, cls.__name__, None) is cls


def _marshal_once(cls: type, payload: Any, original: Any = None) -> ctypes.c_void_p:
    method = original if original is not None else cls.__c_pointers__  # type: ignore[attr-defined]
    [pointer] = method(_holding(cls, payload))
    if type(pointer) is not ctypes.c_void_p:
        raise UnknownLayoutError(f"{cls.__name__} marshals to a {type(pointer).__name__}")
    return _owning(pointer)


def _make_marshal(cls: type, original: Any) -> Callable[[Any], ctypes.c_void_p]:
    # Scalars of our own to marshal from: the caller's may be written to meanwhile.
    spares: list[Any] = []

    def marshal(payload: Any) -> ctypes.c_void_p:
        try:
            scalar = spares.pop()
        except IndexError:
            scalar = object.__new__(cls)
        scalar.value = payload
        [pointer] = original(scalar)
        spares.append(scalar)
        return _owning(pointer)

    return marshal


_CTYPES: Final[dict[type, tuple[Any, ...]]] = {
    int: tuple(
        getattr(ctypes, name)
        for name in (
            *("c_bool", "c_int8", "c_uint8", "c_int16", "c_uint16"),
            *("c_int32", "c_uint32", "c_int64", "c_uint64"),
        )
    ),
    float: (ctypes.c_double, ctypes.c_float),
}
_PROOFS: Final[dict[type, tuple[Any, ...]]] = {
    int: (
        *(0, 1, 2, -1),
        *(sign << bit for bit in range(1, 66) for sign in (1, -1)),
        *((1 << bit) - 1 for bit in range(2, 66)),
    ),
    float: tuple(
        sign * value
        for sign in (1.0, -1.0)
        for value in (
            *(0.1, 1.0, 1.0 + 2**-24, 1.0 + 3 * 2**-24, 1.0 + 2**-24 + 2**-52),
            *(1 / 3, 65504.0, 3.4028234663852886e38, 2.0**-126, 2.0**-149, 3 * 2.0**-150),
            *(2.0**-24, 5.3e-39, 1.0 - 2**-25, 16777217.0, float("inf")),
        )
    ),
}


def _proved_ctype(
    kind: type | None,
    marshal: Callable[[Any], ctypes.c_void_p] | None,
    quiet: Callable[[Any], bool],
) -> Any:
    """The ctypes type whose buffer is the release's own, as far as can be proved.

    An integer buffer is determined by its bits, a float one by how it rounds:
    every bit, and every kind of rounding, is compared with ``marshal``.
    """
    if kind is None or marshal is None:
        return None
    pointers = {}
    for value in _PROOFS[kind]:
        if quiet(value):
            pointers[value] = buffer_of(marshal(value))
    for ctype in _CTYPES[kind]:
        if all(
            bytes(ctype(value)) == bytes(buffer) and ctypes.sizeof(ctype) == ctypes.sizeof(buffer)
            for value, buffer in pointers.items()
        ):
            return ctype
    return None


def _numeric_classes(typing: Any) -> Iterator[type]:
    """Every class of the metaclass there is, base before derived."""
    seen: set[int] = set()  # by id: a metaclass may have a hash of its own
    pending: list[type] = [object]
    while pending:
        cls = pending.pop(0)
        if id(cls) in seen:
            continue
        seen.add(id(cls))
        if isinstance(cls, typing.NumericMeta):
            yield cls
        pending.extend(type.__subclasses__(cls))


def _release(typing: Any) -> tuple[str, str]:
    """The release and the folder of the DSL that ``typing`` belongs to."""
    package = sys.modules.get("cutlass")
    location = os.path.dirname(os.path.dirname(typing.__file__ or ""))  # noqa: PTH120
    release = getattr(package, "__version__", None)
    if release is None:
        release = _version_of("nvidia-cutlass-dsl")
    return str(release), location


# -- the process-wide state -----------------------------------------------------

_lock = threading.RLock()
_adapters: list[_Adapter] = []
_warned: set[str] = set()
#: The arguments of the install() in force; None while uninstalled.
_request: tuple[bool | None] | None = (None,) if import_hook.armed() else None
#: Whether the classes are waited for.
_hooked = False


def _current() -> _Adapter | None:
    """The adapter of the DSL loaded now; a reloaded one has none yet."""
    typing = sys.modules.get(TYPING_MODULE)
    meta = getattr(typing, "NumericMeta", None)
    for adapter in _adapters:
        if adapter.active and adapter.typing is typing and "intern" in vars(meta or object):
            return adapter
    return None


def _renew_after_fork() -> None:
    # Other threads, their traces and what they had locked, are not in the child.
    global _lock
    _lock = threading.RLock()
    for adapter in _adapters:
        if adapter.active:
            registry.reseal(adapter.tracing.depth())


os.register_at_fork(after_in_child=_renew_after_fork)


def _audit_as_asked() -> None:
    audit_every = os.environ.get("SCALARINTERN_AUDIT", "0")
    if audit_every not in ("", "0"):
        # A number says how many misses lie between two audits; 1 and words mean yes.
        number = int(audit_every) if audit_every.isdecimal() else 1
        registry.audit_every = number if number > 1 else 10_000
        atexit.register(registry.audit_and_warn)


_audit_as_asked()


def install(*, launch: bool | None = None) -> Installation:
    """Apply the adapter to the DSL, now or once it is imported; idempotent.

    All or nothing: a release that is laid out in another way is left as it is,
    with one :class:`UnknownLayoutWarning`, and the program runs on stock.

    Args:
        launch: Whether launches take the short way; None asks the environment
            (``SCALARINTERN_LAUNCH=0`` keeps it off).

    Returns:
        What was patched, on which release, and what was left alone and why.
    """
    global _request
    with _lock:
        _request = (launch,)
        import_hook.arm(dsl_import_begins)
    if "cutlass" in sys.modules:  # half imported, it may be
        dsl_import_begins()
    typing = _loaded_typing()  # may wait for another thread's import: unlocked
    if typing is None:
        return Installation(installed=False, reason="the DSL is not imported yet")
    with _lock:
        adapter = _current()
        if adapter is None:
            return _install_on(typing, launch)
        return adapter.record if launch is None else adapter.set_launch(launch)


def dsl_import_begins() -> None:
    """Have the adapter applied when the DSL's classes are there; may be called again."""
    global _hooked
    if _hooked or TYPING_MODULE in sys.modules:
        return
    # It takes long to import (newer releases load asyncio): only who uses the DSL pays.
    from wrapt import register_post_import_hook

    _hooked = True
    register_post_import_hook(_imported, TYPING_MODULE)
    launch.watch()


def _imported(typing: Any) -> None:
    global _hooked
    _hooked = False
    # wrapt may find it half imported by another thread: this waits for that to end.
    importlib.import_module(typing.__name__)
    with _lock:
        if _request is not None and _current() is None:
            try:
                _install_on(typing, *_request)
            except UnknownLayoutWarning as warning:
                # A filter made an error of it; the import must succeed all the same.
                print(f"{type(warning).__name__}: {warning}", file=sys.stderr)


def _install_on(typing: Any, launch: bool | None) -> Installation:
    if launch is None:
        launch = os.environ.get("SCALARINTERN_LAUNCH", "1") != "0"
    adapter = _Adapter(typing, with_launch=launch)
    try:
        record = adapter.apply()
    except UnknownLayoutError as error:
        release, location = _release(typing)
        if location not in _warned:
            _warned.add(location)
            warnings.warn(
                f"scalarintern {_version_of('scalarintern')} does not know the layout of "
                f"nvidia-cutlass-dsl {release} ({error}); nothing was changed and "
                f"scalars are not interned. Please report it at {ISSUES}",
                UnknownLayoutWarning,
                stacklevel=3,
            )
        return Installation(installed=False, release=release, location=location, reason=str(error))
    _adapters.append(adapter)
    return record


def uninstall() -> list[str]:
    """Take the adapter off again; idempotent.

    Every class and metaclass is as before, member by member, and pointers handed
    out stay good. What somebody else patched on top of ours stays theirs, and
    goes on working through the release's own method.

    Returns:
        Names of what could not be restored for that reason; mostly empty.
    """
    global _request
    with _lock:
        _request = None
        import_hook.disarm()
        left: list[str] = []
        while _adapters:
            left += _adapters.pop().undo()
        return left


def is_installed() -> bool:
    """Whether the adapter is applied to the DSL loaded now."""
    with _lock:
        return _current() is not None


@_transparent
def intern(cls: Any, value: Any, /) -> Any:
    """Return ``cls.intern(value)``, for any numeric class of the DSL.

    Raises:
        NotAScalarClassError: ``cls`` is no concrete numeric class.
        NotInstalledError: The adapter is not applied.
    """
    adapter = _current()
    if adapter is None:
        if not any(base.__module__ == TYPING_MODULE for base in getattr(cls, "__mro__", ())):
            raise NotAScalarClassError(f"{cls!r} is no numeric class of the DSL")
        raise NotInstalledError("the adapter is not applied; call scalarintern.install()")
    if not isinstance(cls, adapter.typing.NumericMeta):
        raise NotAScalarClassError(f"{cls!r} is no numeric class of the DSL")
    return cls.intern(value)


def pointer_table(cls: type) -> ScalarTable | None:
    """Return the table a class marshals through, or None if it does not."""
    adapter = _current()
    return None if adapter is None else adapter.pointer_table(cls)


def _loaded_typing() -> Any:
    """The DSL's typing module, fully imported, or None. Never starts an import."""
    typing = sys.modules.get(TYPING_MODULE)
    if typing is None:
        return None
    if getattr(getattr(typing, "__spec__", None), "_initializing", False):
        # Another thread is importing it: this waits for that to end.
        typing = importlib.import_module(TYPING_MODULE)
        if getattr(typing.__spec__, "_initializing", False):
            return None
    return typing


def _version_of(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
