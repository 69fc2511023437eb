"""Knows whether a trace is open, and keeps shared scalars clean of its values."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ledger import Ledger
    from .registry import ScalarRegistry

__all__ = ["Tracing"]


@attrs.define(eq=False)
class _Trace:
    """An entered MLIR context, and the int8 values that Booleans have in it."""

    context: Any
    int8_values: dict[int, tuple[Any, Any]]


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[_Trace] = []


class Tracing:
    """Follows a DSL's traces by the MLIR contexts that threads enter and leave.

    Every trace runs inside ``with ir.Context()``. While one is open, on any
    thread, the registry is sealed, so that ``intern`` takes the slow way, which
    asks :meth:`is_open`.
    """

    def __init__(self, ir: Any, registry: ScalarRegistry) -> None:
        self._context_class: Any = ir.Context
        self._insertion_point: Any = ir.InsertionPoint
        self._registry = registry
        self._stack = _Stack()

    def is_open(self) -> bool:
        """Whether a trace is open on this thread."""
        return self._context_class.current is not None

    def depth(self) -> int:
        """How many contexts this thread has entered and not left."""
        return len(self._stack.traces)

    def apply(self, ledger: Ledger) -> None:
        """Follow the context class from now on."""
        registry = self._registry
        stack = self._stack
        enter: Any = self._context_class.__enter__
        leave: Any = self._context_class.__exit__

        def __enter__(context: Any) -> Any:
            entered = enter(context)
            known = (t.int8_values for t in stack.traces if t.context is context)
            stack.traces.append(_Trace(context, next(known, {})))
            registry.seal()
            return entered

        def __exit__(context: Any, *exc_info: Any) -> Any:
            traces = stack.traces
            if traces and traces[-1].context is context:
                traces.pop()
                registry.unseal()
                if not traces and not registry.sealed():
                    _scrub(registry)
            return leave(context, *exc_info)

        ledger.patch(self._context_class, "__enter__", __enter__)
        ledger.patch(self._context_class, "__exit__", __exit__)
        context = self._context_class.current
        if context is not None:  # installed from inside a trace
            stack.traces.append(_Trace(context, {}))
            registry.seal()

    def keep_int8_values_per_trace(
        self, boolean: type, clone: Callable[[Any], Any], ledger: Ledger
    ) -> None:
        """Stop ``Boolean.ir_value_int8`` from caching on shared instances.

        The release stores the IR value of the first trace on the instance, and a
        later trace that reads it crashes the process. Here a Boolean that holds a
        Python value has one int8 value per trace, kept with the trace.
        """
        original: Any = boolean.__dict__["ir_value_int8"]
        stack = self._stack
        point = self._insertion_point

        def ir_value_int8(self: Any, **kwargs: Any) -> Any:
            traces = stack.traces
            if not traces or type(self.value) not in (bool, int):
                return original(self, **kwargs)
            values = traces[-1].int8_values
            known = values.get(id(self))
            # One made in another branch, or in another function, cannot be used here.
            if known is None or not _in_scope(known[1], kwargs.get("ip") or point.current):
                # The Boolean is held with its value: its id stays taken.
                known = values[id(self)] = (self, original(clone(self), **kwargs))
            return known[1]

        ir_value_int8.__doc__ = original.__doc__
        ledger.patch(boolean, "ir_value_int8", ir_value_int8)


def _scrub(registry: ScalarRegistry) -> None:
    """Take off what PyIR left on canonical scalars: values and epochs of a closed trace."""
    for table in registry.tables():
        for _, scalar in table.scalars.live():
            held: Any = getattr(scalar, "__dict__", ())
            if len(held) > 1:
                for name in list(held):
                    if name.startswith(("_pyir_", "_mutable_ref")):
                        held.pop(name, None)


def _in_scope(value: Any, point: Any) -> bool:
    """Whether an operation's result was made in the block of ``point`` or in one around it."""
    # Older releases tell the block of an operation by an insertion point alone.
    before = type(point)
    home = before(value.owner.operation).block
    block = point.block
    while block != home:
        around = block.owner.operation
        if around.parent is None:
            return False
        block = before(around).block
    return True
