"""Notices that an import of the DSL begins; until then it costs next to nothing.

With the errors this is all that ``import scalarintern`` loads. What is to be
done then is passed in: nothing here knows the rest of the package.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["arm", "armed", "disarm"]

#: The second is for an import that had looked for the first when this was armed.
_PACKAGES = ("cutlass", "cutlass.base_dsl")

_callback: Callable[[], None] | None = None


class _Finder:
    """Finds the DSL by the other finders, and puts a loader of ours before theirs.

    Python looks for modules under a lock that every import of every thread needs.
    To import anything from here, or to wait for a thread that does, may deadlock.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if _callback is None or name not in _PACKAGES:
            return None
        finders = iter([*sys.meta_path])
        if self not in finders:  # takes all up to us off it: those are asked already
            return None
        for finder in finders:
            find_spec = getattr(finder, "find_spec", None)
            spec = None if find_spec is None else find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    """Calls what is armed, and leaves the rest to the package's own loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        callback = _callback
        if callback is not None:
            try:
                callback()
            except Exception as error:
                # The import is not ours to break, not even where warnings are errors.
                disarm()
                text = f"scalarintern: not applied: {type(error).__name__}: {error}"
                print(text, file=sys.stderr)
        self._loader.exec_module(module)


_finder = _Finder()


def arm(callback: Callable[[], None]) -> None:
    """Have ``callback`` called whenever an import of the DSL begins.

    It replaces the one that was armed. It runs in the thread that imports, and may
    run in several at once; if it raises, that is printed and it is disarmed.
    """
    global _callback
    _callback = callback
    if _finder not in sys.meta_path:
        # Never taken out again: another thread's search would skip the next finder.
        sys.meta_path.insert(0, _finder)


def disarm() -> None:
    """Have nothing called."""
    global _callback
    _callback = None


def armed() -> bool:
    """Whether there is something to be called."""
    return _callback is not None
