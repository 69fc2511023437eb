"""Interned scalars for NVIDIA CuTe DSL: ``import scalarintern`` is the fix.

Importing this applies the adapter to nvidia-cutlass-dsl: at once if the DSL is
loaded, else as soon as it is. ``SCALARINTERN=0`` in the environment keeps it off.
"""

from __future__ import annotations

import os as _os
from typing import Any as _Any

from .dsl_adapter import (
    Installation,
    install,
    intern,
    is_installed,
    uninstall,
)
from .dsl_adapter import (
    registry as _registry,
)
from .errors import (
    ConfigurationError,
    EncoderError,
    NotAScalarClassError,
    NotInstalledError,
    ScalarInternError,
    UnknownLayoutError,
    UnknownLayoutWarning,
    UnsupportedValueError,
)
from .registry import ClassStats, Finding, RegistryStats, ScalarRegistry

__all__ = [
    "ClassStats",
    "ConfigurationError",
    "EncoderError",
    "Finding",
    "Installation",
    "NotAScalarClassError",
    "NotInstalledError",
    "RegistryStats",
    "ScalarInternError",
    "ScalarRegistry",
    "UnknownLayoutError",
    "UnknownLayoutWarning",
    "UnsupportedValueError",
    "audit",
    "clear",
    "configure",
    "install",
    "intern",
    "is_installed",
    "stats",
    "uninstall",
]

stats = _registry.stats
audit = _registry.audit
clear = _registry.clear
configure = _registry.configure


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("scalarintern")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _apply_when_loaded() -> None:
    if _os.environ.get("SCALARINTERN", "1") == "0":
        return
    install()
    audit_every = _os.environ.get("SCALARINTERN_AUDIT", "0")
    if audit_every not in ("", "0"):
        import atexit

        # A number says how many misses lie between two audits; 1 and words mean yes.
        number = int(audit_every) if audit_every.isdecimal() else 1
        _registry.audit_every = number if number > 1 else 10_000
        atexit.register(_registry.audit_and_warn)


_apply_when_loaded()
