"""The errors this package raises; each says what to do."""

from __future__ import annotations

__all__ = [
    "ConfigurationError",
    "EncoderError",
    "NotAScalarClassError",
    "NotInstalledError",
    "ScalarInternError",
    "UnknownLayoutError",
    "UnknownLayoutWarning",
    "UnsupportedValueError",
]


class ScalarInternError(Exception):
    """Base class of every error of this package."""


class ConfigurationError(ScalarInternError, ValueError):
    """A setting is of the wrong type or out of range; nothing was changed."""


class EncoderError(ScalarInternError, ValueError):
    """An encoder returned something that cannot be put into a buffer."""


class NotAScalarClassError(ScalarInternError, TypeError):
    """The class has no scalars to intern: abstract, or no numeric class at all."""


class UnsupportedValueError(ScalarInternError, TypeError):
    """The scalar holds something other than a plain bool, int or float."""


class NotInstalledError(ScalarInternError, RuntimeError):
    """The adapter is not applied, so there is nothing to intern with."""


class UnknownLayoutError(ScalarInternError, RuntimeError):
    """The DSL release is laid out in a way this version does not know."""


class UnknownLayoutWarning(UserWarning):
    """The adapter left an unknown DSL release as it is."""
