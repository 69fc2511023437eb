"""The short way from the call of a compiled function to C.

The ``__call__`` of what ``cute.compile`` returns, and of the executors that its
``to()`` makes, is replaced on the class. It looks for a launcher on the executor,
made after the first call for the signature and the kinds of arguments seen (see
:mod:`.launchers`), and calls the release's own ``__call__`` where there is none or
it defers. Launchers are held by their executor alone and do not refer to it.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import threading
import weakref
from contextlib import suppress
from math import copysign
from typing import TYPE_CHECKING, Any, Final

import attrs

from .launchers import (
    HEAD,
    Adapted,
    Defer,
    Foreign,
    Handle,
    Lane,
    Numbers,
    Option,
    make,
    memory,
    unseen,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .registry import ScalarTable

__all__ = ["PROVED", "Applied", "apply", "retire", "watch"]

_EXECUTOR_MODULE: Final = "cutlass.base_dsl.jit_executor"
_CUDA_MODULE: Final = "cutlass.cutlass_dsl.cuda_jit_executor"
_ADAPTERS_MODULE: Final = "cutlass.base_dsl.runtime.jit_arg_adapters"

#: Releases that the differential test passes on, with the module and class whose
#: ``__call__`` runs compiled functions; None where an executor is what one gets.
PROVED: Final[dict[str, tuple[str, str] | None]] = {
    "4.2.0": None,
    "4.5.3": (_EXECUTOR_MODULE, "JitCompiledFunction"),
    "4.6.0": (_EXECUTOR_MODULE, "JitCompiledFunction"),
    "4.6.1": (_EXECUTOR_MODULE, "JitCompiledFunction"),
    "4.6.2": (_EXECUTOR_MODULE, "JitCompiledFunction"),
    "4.6.3": (_EXECUTOR_MODULE, "JitCompiledFunction"),
    "4.7.1": (_EXECUTOR_MODULE, "JitCompiledFunction"),
    "4.8.1": (_CUDA_MODULE, "CudaDialectJitCompiledFunction"),
}

#: Adapters that make one pointer of a CUDA handle, by ``getPtr()`` alone.
_HANDLE_ADAPTERS: Final = {
    "StreamAdapter",
    "CudaDialectStreamAdapter",
    "CudaDriverStreamAdapter",
    "CudaRuntimeStreamAdapter",
    "CudaDriverEventAdapter",
    "CudaRuntimeEventAdapter",
    "CudaDialectLibraryAdapter",
}

#: How often a function may turn out to take other arguments than its launcher
#: knows, and get a new one; after that such calls are simply the release's.
_PATIENCE: Final = 16


@attrs.define
class Applied:
    """Whether launches take the short way.

    Attributes:
        applied: Whether they do; also true while the DSL is still being imported.
        reason: Why they do not; empty if they do.
        release: The release asked for.
        patched: What was replaced, as ``Class.member``; filled as modules load.
    """

    applied: bool
    reason: str = ""
    release: str = ""
    patched: list[str] = attrs.field(factory=list)


class _NoLauncherError(Exception):
    """This function is not for us; says why."""


@attrs.frozen
class _Parameter:
    name: str
    annotation: Any
    keyword_only: bool = False
    default: Any = inspect.Parameter.empty


@attrs.frozen
class _Target:
    """What a launcher needs to know of the function that it launches.

    Attributes:
        parameters: The run-time parameters, in the order of their pointers.
        straight: Whether so many positional arguments as parameters are them.
        binds_keywords: Whether the release binds keywords as Python does, however
            they come; else that is so only for all that is left, in order.
        guard: See :func:`.launchers.make`; its names are in ``names``.
        names: Likewise.
        capi: The compiled function.
        result: Type of the CUDA result it reports, or None.
        tail: Pointers that follow the arguments', after the result's.
        adapt: ``adapt(argument, slot, keep)``, the release's own step for an
            argument without ``__c_pointers__`` or numeric annotation.
        scope: Scope of the argument adapters, where there are such.
        held: What must live as long as the launcher.
    """

    parameters: tuple[_Parameter, ...]
    straight: bool
    binds_keywords: bool
    guard: str
    names: dict[str, Any]
    capi: Any
    result: Any
    tail: tuple[ctypes.c_void_p, ...]
    adapt: Callable[[Any, int, list[Any]], Any]
    scope: str | None
    held: Any


class _Application:
    """Launchers on one loaded DSL."""

    def __init__(
        self,
        release: str,
        table_of: Callable[[type], ScalarTable | None],
        patch: Callable[[type, str, Any], None],
    ) -> None:
        self.release = release
        self.table_of = table_of
        self.patch = patch
        self.active = True
        self.done = False
        self.record = Applied(True, release=release)
        self.lock = threading.RLock()
        self.owners: weakref.WeakSet[Any] = weakref.WeakSet()

    # -- applying and undoing -------------------------------------------------

    def apply(self, loaded: Callable[[str], Any]) -> None:
        """Patch once all modules are there; ``loaded`` returns a module or None."""
        place = PROVED[self.release]
        executors = loaded(_EXECUTOR_MODULE)
        compiled = executors if place is None else loaded(place[0])
        if self.done or executors is None or compiled is None:
            return
        self.done = True
        self.typing = sys.modules["cutlass.base_dsl.typing"]
        self.adapters = sys.modules[_ADAPTERS_MODULE]
        self.executors = executors
        executor_class = executors.JitExecutor
        entries = [_Entry(self, executor_class, "_scalarintern_executor_launch", None)]
        if place is not None:
            entries.append(
                _Entry(
                    self,
                    getattr(compiled, place[1]),
                    "_scalarintern_launch",
                    "_default_executor",
                )
            )
        self.names = tuple(entry.name for entry in entries)
        for entry in entries:
            self.patch(entry.owner, "__call__", entry.dispatcher())
            self.record.patched.append(f"{entry.owner.__qualname__}.__call__")

    def retire(self) -> None:
        self.active = False
        with self.lock:
            owners = list(self.owners)
            self.owners.clear()
        for owner in owners:
            for name in self.names:
                vars(owner).pop(name, None)

    def attach(self, owner: Any, name: str, launch: Any) -> None:
        """Put a launcher on its executor."""
        with self.lock:
            self.owners.add(owner)
            object.__setattr__(owner, name, launch)
        if not self.active:  # retired meanwhile
            vars(owner).pop(name, None)

    # -- lanes ----------------------------------------------------------------

    def lanes(
        self, target: _Target, values: tuple[Any, ...], known: tuple[Lane, ...] | None
    ) -> tuple[Lane, ...]:
        """Return what each slot takes, given what it is known to and takes now."""
        found = []
        for i, (parameter, value) in enumerate(zip(target.parameters, values)):
            lane = None if known is None else known[i]
            found.append(self._lane(target, parameter, value, lane))
        return tuple(found)

    def _lane(self, target: _Target, parameter: _Parameter, value: Any, known: Lane | None) -> Lane:
        cls = type(value)
        annotation = parameter.annotation
        if isinstance(annotation, self.typing.NumericMeta):
            options = known.options if isinstance(known, Numbers) else ()
            if not options:
                is_float = issubclass(type(annotation), self.typing.FloatMeta)
                options += self._options(
                    annotation, (float, int, bool) if is_float else (int, bool)
                )
            other = self._lasting(cls)
            if other is not None and all(option.cls is not other for option in options):
                options += self._options(other, None)
            if not options:
                raise _NoLauncherError(f"{parameter.name}: {annotation} has no table")
            return Numbers(options)
        if known is not None and not isinstance(known, Numbers):
            if self._fits(known, value):
                return known
            several = isinstance(known, Foreign) and hasattr(cls, "__c_pointers__")
            return Foreign() if several else Adapted()
        number = self._adapted_number(target, value)
        if number is not None:
            options = known.options if isinstance(known, Numbers) else ()
            if all(option.cls is not number for option in options):
                options += self._options(number, _RAW.get(number.__name__))
            if options:
                return Numbers(options)
        if known is not None:
            return Adapted()
        if hasattr(cls, "__c_pointers__"):
            return Foreign(cls=cls if self._asks_itself(cls) else None)
        if not self._is_handle(self._adapter(target, cls)):
            return Adapted()
        # Of the bindings' own types it is known that the pointer is to the record itself.
        return Handle(cls, cls.__module__.startswith(("cuda.bindings.", "cuda.cuda")))

    def _fits(self, lane: Lane, value: Any) -> bool:
        cls = type(value)
        if isinstance(lane, (Handle, Foreign)) and lane.cls is not None:
            return cls is lane.cls
        return isinstance(lane, Adapted) or hasattr(cls, "__c_pointers__")

    def _asks_itself(self, cls: type) -> bool:
        """Whether a class is the DSL's, with a method that any instance answers by."""
        module = sys.modules.get(cls.__module__)
        return (
            cls.__module__.startswith(f"{self.typing.__name__.partition('.')[0]}.")
            and getattr(module, cls.__qualname__, None) is cls
            and inspect.isfunction(inspect.getattr_static(cls, "__c_pointers__"))
        )

    def _lasting(self, cls: type) -> type | None:
        """A numeric class that is the DSL's; others must not be kept alive by us."""
        if isinstance(cls, self.typing.NumericMeta):
            return cls if getattr(self.typing, cls.__name__, None) is cls else None
        return None

    def _adapted_number(self, target: _Target, value: Any) -> type | None:
        """The numeric class that an un-annotated slot's argument is or becomes."""
        cls = type(value)
        if isinstance(cls, self.typing.NumericMeta):
            return self._lasting(cls)
        # By identity: metaclasses of the DSL compare and hash classes in ways of their own.
        for number, name in _NUMBERS:
            if cls is number and self._is_own(self._adapter(target, cls)):
                return getattr(self.typing, name, None)
        return None

    def _options(self, cls: Any, raw: tuple[type, ...] | None) -> tuple[Option, ...]:
        """Return a class as an option, unless its ways are not all known.

        Args:
            cls: The class.
            raw: Types of the Python numbers that are made into it, the usual first.
        """
        table = self.table_of(cls)
        adapter = sys.modules[self.table_of.__module__]
        if (
            table is None
            or table.kind is None
            or cls.is_abstract
            or not _written_in(cls.__c_pointers__, adapter)  # replaced by somebody since
        ):
            return ()
        if (
            type(cls).__call__ is not type.__call__
            or cls.__new__ is not object.__new__
            or not _written_in(cls.__init__, self.typing)
        ):
            raw = None
        miss = _make_miss(table, cls, self.typing.cast, raw or ())
        return (Option(cls, raw[0] if raw else None, table.kind, table.fast_pointers, miss),)

    def _adapter(self, target: _Target, cls: type) -> Any:
        registry = self.adapters.JitArgAdapterRegistry
        scoped = getattr(registry, "scoped_jit_arg_adapter_registries", {})
        adapter = scoped.get(target.scope, {}).get(cls)
        return adapter or registry.jit_arg_adapter_registry.get(cls)

    def _is_own(self, adapter: Any) -> bool:
        name = getattr(adapter, "__name__", "")
        return name == "_convert_python_scalar" and _written_in(adapter, self.adapters)

    def _is_handle(self, adapter: Any) -> bool:
        if not isinstance(adapter, type) or adapter.__name__ not in _HANDLE_ADAPTERS:
            return False
        package = self.typing.__name__.partition(".")[0]
        return adapter.__module__.startswith(f"{package}.") and all(
            getattr(adapter, name).__module__.startswith(f"{package}.")
            for name in ("__init__", "__c_pointers__")
        )


#: What the release's adapter makes of a Python number in an un-annotated slot.
_NUMBERS: Final = ((int, "Int32"), (float, "Float32"), (bool, "Boolean"))
_RAW: Final = {name: (number,) for number, name in _NUMBERS}


def _written_in(function: Any, module: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == module.__file__


def _make_miss(table: ScalarTable, cls: Any, cast: Any, raw: tuple[type, ...]) -> Any:
    """Return what finds a pointer that the fast dict does not give.

    A new value takes the release's own steps, if it is sure that they say nothing.

    Args:
        table: The class's.
        cls: The class.
        cast: The release's conversion to a class.
        raw: Types of the raw numbers that are cast.
    """
    get = table.fast_pointers.get
    zeros = table.zero_pointers
    quiet = table.quiet
    kind = table.kind
    low = high = 0
    if kind is int:
        width = cls.width
        signed = cls.signed and width > 1
        low = -(1 << width - 1) if signed else 0
        high = (1 << width - signed) - 1

    @unseen
    def miss(argument: Any, payload: Any) -> Any:
        exact = type(payload)
        if exact is not kind:
            if payload is not argument or exact not in raw:
                raise Defer
            pointer = get(payload)
            if pointer is not None:
                return pointer
        if kind is float:
            try:
                number = float(payload)
            except OverflowError:
                raise Defer from None
            if payload == 0:
                pointer = zeros.get(copysign(1.0, payload))
                if pointer is not None:
                    return pointer
            elif quiet is not None and not quiet(number):
                raise Defer
        elif not low <= payload <= high:
            raise Defer
        pointers = cast(payload, cls).__c_pointers__()
        if len(pointers) != 1 or type(pointers[0]) is not ctypes.c_void_p:
            raise Defer
        return pointers[0]

    return miss


class _Entry:
    """One class whose ``__call__`` is replaced.

    Attributes:
        owner: The class.
        name: Where an executor holds the launchers for calls of this class.
        via: Attribute by which an instance holds its executor; None for executors.
    """

    def __init__(self, application: _Application, owner: type, name: str, via: str | None) -> None:
        self.application = application
        self.owner = owner
        self.name = name
        self.via = via
        self.stock: Any = owner.__dict__["__call__"]

    def dispatcher(self) -> Any:
        first = self._first
        if self.via is None:

            @unseen
            def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
                try:
                    launch = self._scalarintern_executor_launch
                except AttributeError:
                    launch = first
                return launch(self, args, kwargs)

        else:

            @unseen
            def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
                try:
                    launch = self._default_executor._scalarintern_launch
                except AttributeError:
                    launch = first
                return launch(self, args, kwargs)

        for name in ("__module__", "__qualname__", "__doc__", "__annotations__"):
            setattr(__call__, name, getattr(self.stock, name))
        return __call__

    def executor_of(self, function: Any) -> Any:
        return function if self.via is None else getattr(function, self.via, None)

    @unseen
    def _first(self, function: Any, args: Any, kwargs: Any, patience: int = _PATIENCE) -> Any:
        result = self.stock(function, *args, **kwargs)
        if self.application.active:
            try:
                self._equip(function, args, kwargs, patience)
            except Exception:
                # A launch that went well must not fail for want of a launcher.
                with suppress(Exception):
                    self._put(function, self._never)
        return result

    def _equip(self, function: Any, args: Any, kwargs: Any, patience: int) -> None:
        target = self._target(function)
        values = _bound(target, args, kwargs)
        if values is not None:
            lanes = self.application.lanes(target, values, None)
            self._put(function, self._launcher(target, lanes, patience))
        elif patience:
            # Bound in the release's way; perhaps the next call is clearer.
            first = self._first

            @unseen
            def again(function: Any, args: Any, kwargs: Any) -> Any:
                return first(function, args, kwargs, patience - 1)

            self._put(function, again)
        else:
            self._put(function, self._never)

    def _put(self, function: Any, launch: Any) -> None:
        executor = self.executor_of(function)
        if executor is not None:
            self.application.attach(executor, self.name, launch)

    @unseen
    def _never(self, function: Any, args: Any, kwargs: Any) -> Any:
        return self.stock(function, *args, **kwargs)

    def _launcher(self, target: _Target, lanes: tuple[Lane, ...], patience: int) -> Any:
        counts = [1 if isinstance(lane, (Numbers, Handle)) else lane.count for lane in lanes]
        total, size = sum(counts), sum(counts) + (target.result is not None) + len(target.tail)
        array, result_type, tail = ctypes.c_void_p * size, target.result, target.tail

        def fresh() -> list[Any]:
            packed = array()
            result = None
            at = total
            if result_type is not None:
                result = result_type()
                packed[at] = ctypes.addressof(result)
                at += 1
            for pointer in tail:
                packed[at] = pointer
                at += 1
            state: list[Any] = [packed, ctypes.byref(packed), result]
            assert len(state) == HEAD
            return state + memory(lanes)

        left = [patience]

        def resized(chunks: list[list[Any]]) -> tuple[Lane, ...]:
            return tuple(
                attrs.evolve(lane, count=len(chunk))
                if isinstance(lane, (Foreign, Adapted))
                else lane
                for lane, chunk in zip(lanes, chunks)
            )

        @unseen
        def other(function: Any, args: Any, kwargs: Any) -> Any:
            result = self.stock(function, *args, **kwargs)
            if left[0] > 0 and self.application.active:
                left[0] -= 1
                with suppress(Exception):
                    values = _bound(target, args, kwargs)
                    now = lanes
                    if values is not None:
                        now = self.application.lanes(target, values, lanes)
                    if now != lanes:
                        self._put(function, self._launcher(target, now, left[0]))
            return result

        @unseen
        def finish(function: Any, state: list[Any], packed: Any, parts: tuple[Any, ...]) -> Any:
            state[0] = packed
            chunks = [list(part) for part in parts]
            if left[0] > 0 and self.application.active and [len(c) for c in chunks] != counts:
                left[0] -= 1
                with suppress(Exception):
                    self._put(function, self._launcher(target, resized(chunks), left[0]))
            pointers = [pointer for chunk in chunks for pointer in chunk]
            return self.executor_of(function).run_compiled_program(pointers)

        names = {
            "thread": threading.local(),
            "fresh": fresh,
            "bind": _make_bind(target),
            "stock": self.stock,
            "other": other,
            "finish": finish,
            "adapt": target.adapt,
            "capi": _unconverted(target.capi),
            "crashed": self._crashed,
            "failed": self._failed,
            "c_void_p": ctypes.c_void_p,
            "Defer": Defer,
            **target.names,
        }
        return make(lanes, target.guard, target.straight, target.result is not None, names)

    # Errors are raised by the release's own method, on a stand-in whose call ends
    # in the same way.

    @unseen
    def _failed(self, code: int) -> Any:
        return self._replay(lambda packed: None, code)

    @unseen
    def _crashed(self, error: Exception) -> Any:
        errors = [error]

        def fails(packed: Any) -> None:
            # Not by name: its traceback has this frame, which would be a cycle.
            raise errors.pop()

        return self._replay(fails, 0)

    @unseen
    def _replay(self, capi: Any, code: int) -> Any:
        executor_class = self.application.executors.JitExecutor
        stand_in = _StandIn()
        vars(stand_in).update(
            capi_func=capi,
            cuda_result=ctypes.c_int32(code),
            _has_cuda_result=True,
            _get_invoke_packed_args_func=lambda pointers: None,
            get_invoke_packed_args=lambda pointers: None,
            jit_time_profiling=False,
        )
        return executor_class.run_compiled_program(stand_in, [])

    # -- reading the release's objects ----------------------------------------

    def _target(self, function: Any) -> _Target:
        executor = self.executor_of(function)
        if executor is None:
            raise _NoLauncherError("it has no executor yet")
        if PROVED[self.application.release] is None:
            return self._old_target(executor)
        module = executor.jit_module
        execution = module.execution_args
        if self.via is not None and function.execution_args is not execution:
            raise _NoLauncherError("its arguments are bound by something else")
        if executor.profiler is not None or executor.capi_func is not module.capi_func:
            raise _NoLauncherError("it is profiled")
        if getattr(function, "total_added_arguments", 0):
            raise _NoLauncherError("it takes workspace arguments")
        if getattr(execution, "_has_pointer_address_arg_specs", False):
            raise _NoLauncherError("it takes addresses as integers")
        parameters = []
        for parameter in execution.signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise _NoLauncherError("it takes any number of arguments")
            annotation = parameter.annotation
            parameters.append(
                _Parameter(
                    parameter.name,
                    None if annotation is inspect.Parameter.empty else annotation,
                    parameter.kind is parameter.KEYWORD_ONLY,
                    parameter.default,
                )
            )
        guards = []
        if self.via is not None:
            guards.append("self.execution_args is not execution")
        if hasattr(execution, "_full_arg_check"):
            guards.append("execution._full_arg_check")
        if hasattr(executor, "_pyir_spec"):
            guards.append("self._pyir_spec is not None")
        return _Target(
            parameters=tuple(parameters),
            straight=True,
            binds_keywords=True,
            guard=" or ".join(guards) or "False",
            names={"execution": execution},
            capi=self._checked(executor.capi_func),
            result=type(executor.cuda_result) if executor._has_cuda_result else None,
            tail=tuple(executor._kernel_ptrs or ()),
            adapt=_adapt_by(execution, self.application),
            scope=getattr(execution, "_jit_arg_adapter_scope", None),
            held=(module, executor.exec_context),
        )

    def _old_target(self, executor: Any) -> _Target:
        """Likewise on 4.2.0, where an executor has everything."""
        spec = executor.args_spec
        if spec is None or spec.varargs or spec.varkw:
            raise _NoLauncherError("it takes any number of arguments")
        if executor.jit_time_profiling:
            raise _NoLauncherError("it is profiled")
        empty = inspect.Parameter.empty
        defaults = [empty] * (len(spec.args) - len(spec.defaults or ()))
        defaults += spec.defaults or ()
        parameters = [
            _Parameter(name, spec.annotations.get(name), False, default)
            for name, default in zip(spec.args, defaults)
        ]
        parameters += [
            _Parameter(
                name,
                spec.annotations.get(name),
                True,
                (spec.kwonlydefaults or {}).get(name, empty),
            )
            for name in spec.kwonlyargs
        ]
        modules = executor.cuda_modules
        registry = self.application.adapters.JitArgAdapterRegistry
        get_c_pointers = self.application.typing.get_c_pointers

        @unseen
        def adapt(argument: Any, slot: int, keep: list[Any]) -> Any:
            if hasattr(argument, "__c_pointers__"):
                return argument.__c_pointers__()
            adapter = registry.get_registered_adapter(type(argument))
            if adapter:
                argument = adapter(argument)
                keep.append(argument)
            return get_c_pointers(argument)

        return _Target(
            parameters=tuple(parameters),
            straight=not spec.kwonlyargs,
            binds_keywords=False,
            guard="self.args_spec is not spec or self.cuda_modules is not modules "
            "or self.jit_time_profiling",
            names={"spec": spec, "modules": modules},
            capi=self._checked(executor.capi_func),
            result=None,
            tail=tuple(modules.args if modules else ()),
            adapt=adapt,
            scope=None,
            held=(executor.engine, modules),
        )

    def _checked(self, capi: Any) -> Any:
        """A ctypes function that takes one pointer, so that a reference will do."""
        if (
            not isinstance(capi, ctypes._CFuncPtr)  # type: ignore[attr-defined]
            or tuple(capi.argtypes or ()) != (ctypes.c_void_p,)
            or capi.errcheck is not None
        ):
            raise _NoLauncherError("its C function is of an unknown kind")
        return capi


def _unconverted(capi: Any) -> Any:
    """Return the same C function as one that is not told its argument's type.

    ctypes then hands a reference over as it is, which saves a quarter of the call.
    """
    prototype = ctypes.CFUNCTYPE(capi.restype)
    address = ctypes.cast(capi, ctypes.c_void_p).value
    if address is None or type(capi)._flags_ != prototype._flags_:
        return capi
    return prototype(address)


class _StandIn:
    """Stands for an executor in the release's ``run_compiled_program``."""


def _adapt_by(execution: Any, application: _Application) -> Callable[[Any, int, list[Any]], Any]:
    registry = application.adapters.JitArgAdapterRegistry
    get_c_pointers = application.typing.get_c_pointers

    @unseen
    def step(argument: Any, cache: dict[type, Any], keep: list[Any]) -> Any:
        cls = type(argument)
        adapter = cache.get(cls)
        if adapter is None:
            adapter = registry.get_registered_adapter(argument)
            if adapter is not None:
                cache[cls] = adapter
        if adapter is not None:
            argument = adapter(argument)
            keep.append(argument)
        return get_c_pointers(argument)

    step = getattr(execution, "_adapt_and_get_c_pointers", step)
    scoped = getattr(registry, "call_with_scope", None)
    count = execution._meta.arg_count

    @unseen
    def adapt(argument: Any, slot: int, keep: list[Any]) -> Any:
        method = getattr(argument, "__c_pointers__", None)
        if method is not None:
            return method()
        # The release's own caches, per thread and slot.
        local = execution._tls
        caches = getattr(local, "adapter_caches", None)
        if caches is None:
            caches = local.adapter_caches = [{} for _ in range(count)]
        if scoped is None:
            return step(argument, caches[slot], keep)
        return scoped(execution._jit_arg_adapter_scope, step, argument, caches[slot], keep)

    return adapt


# -- binding ----------------------------------------------------------------------


def _bound(
    target: _Target, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...] | None:
    if target.straight and not kwargs and len(args) == len(target.parameters):
        return args
    return _make_bind(target)(args, kwargs)


def _make_bind(target: _Target) -> Callable[[Any, Any], tuple[Any, ...] | None]:
    """Return what puts arguments in the order of parameters, or returns None.

    Python binds them, to a function of the same parameters. Positional arguments
    for keyword-only parameters are bound only where no slot is left open, which
    the launcher does by itself.
    """
    empty = inspect.Parameter.empty
    defaults = {}
    head, names, star = [], [], False
    for i, parameter in enumerate(target.parameters):
        if parameter.keyword_only and not star:
            head.append("*")
            star = True
        word = parameter.name
        if not word.isidentifier():
            return lambda args, kwargs: None
        if parameter.default is not empty:
            defaults[f"_default_{i}"] = parameter.default
            word += f"=_default_{i}"
        head.append(word)
        names.append(parameter.name)
    source = f"lambda {', '.join(head)}: ({''.join(f'{name}, ' for name in names)})"
    try:
        bound = eval(source, defaults)
    except SyntaxError:
        return lambda args, kwargs: None
    binds_keywords = target.binds_keywords

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        if kwargs and not binds_keywords and list(kwargs) != names[len(args) :]:
            return None
        try:
            return bound(*args, **kwargs)  # type: ignore[no-any-return]
        except TypeError:
            return None

    return bind


# -- the process-wide state -------------------------------------------------------

_applications: list[_Application] = []
_watched: list[str] = []


def watch() -> None:
    """Have :func:`apply` go on by itself when the DSL's modules are imported.

    To be called before the DSL is imported, as long as that is possible.
    """
    from wrapt import register_post_import_hook  # slow to import, and seldom needed

    # The package comes last; its hook is for who finds the others half imported.
    for name in (_EXECUTOR_MODULE, _CUDA_MODULE, "cutlass.cutlass_dsl"):
        if name not in _watched and sys.modules.get(name) is None:
            _watched.append(name)
            register_post_import_hook(_imported, name)


def _imported(module: Any) -> None:
    def loaded(name: str) -> Any:
        return module if name == module.__name__ else _loaded(name)

    for application in _applications:
        if application.active:
            _apply(application, loaded)


def _apply(application: _Application, loaded: Callable[[str], Any]) -> None:
    # An import may hang on this, which must go on.
    try:
        application.apply(loaded)
    except Exception as error:
        application.active = False
        application.record.applied = False
        application.record.reason = f"{type(error).__name__}: {error}"


def _loaded(name: str) -> Any:
    module = sys.modules.get(name)
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    return module


def apply(
    release: str,
    table_of: Callable[[type], ScalarTable | None],
    patch: Callable[[type, str, Any], None],
) -> Applied:
    """Put the short way under the DSL that is loaded or being imported.

    Args:
        release: Release of nvidia-cutlass-dsl.
        table_of: Returns the table that a class marshals through, or None.
        patch: Sets a class attribute so that it can be put back.
    """
    if release not in PROVED:
        return Applied(False, f"not proved on {release}", release)
    application = _Application(release, table_of, patch)
    _applications.append(application)
    _apply(application, _loaded)
    if application.active and not application.done:
        watch()
    return application.record


def retire() -> None:
    """Drop every launcher; compiled functions are as they were made."""
    while _applications:
        application = _applications.pop()
        if application.done:
            application.retire()
        application.active = False
