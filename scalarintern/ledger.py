"""Attributes set on classes, remembered so that each can be put back."""

from __future__ import annotations

from typing import Any, Final

import attrs

__all__ = ["Ledger"]

_ABSENT: Final = object()


@attrs.frozen
class _Line:
    owner: type
    name: str
    before: Any
    after: Any


class Ledger:
    """Sets class attributes and restores them, the last one first.

    Classes are looked at through their own ``__dict__``, so an inherited member
    never becomes an own one, and descriptors come back as the objects they were.
    """

    def __init__(self) -> None:
        self._lines: list[_Line] = []

    def __len__(self) -> int:
        return len(self._lines)

    def patch(self, owner: type, name: str, value: Any) -> None:
        """Set ``owner.name`` and remember what was there."""
        line = _Line(owner, name, owner.__dict__.get(name, _ABSENT), value)
        self._lines.append(line)
        try:
            setattr(owner, name, value)
        except BaseException:
            self._lines.pop()
            raise

    def restore(self) -> list[str]:
        """Put everything back; returns what could not be, as ``owner.name``.

        What somebody else replaced since is theirs, and stays.
        """
        left: list[str] = []
        while self._lines:
            line = self._lines[-1]
            if line.owner.__dict__.get(line.name, _ABSENT) is not line.after:
                left.append(f"{line.owner.__qualname__}.{line.name}")
            elif line.before is _ABSENT:
                delattr(line.owner, line.name)
            else:
                setattr(line.owner, line.name, line.before)
            self._lines.pop()
        return left
