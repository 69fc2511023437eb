"""Interned scalars for NVIDIA CuTe DSL: ``import scalarintern`` is the fix.

Importing this applies the adapter to nvidia-cutlass-dsl: at once if the DSL is
loaded, else as soon as it is. ``SCALARINTERN=0`` in the environment keeps it off.

The adapter, and what is defined there, is loaded when it is first needed: by the
import of the DSL, or by the first use of a name.
"""

from __future__ import annotations

import os as _os
import sys as _sys

from . import import_hook as _import_hook
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

TYPE_CHECKING = False  # as typing's, which takes longer to import than all of this
if TYPE_CHECKING:
    from .dsl_adapter import (
        Installation,
        audit,
        clear,
        configure,
        install,
        intern,
        is_installed,
        stats,
        uninstall,
    )
    from .registry import ClassStats, Finding, RegistryStats, ScalarRegistry

    __version__: str

else:
    #: What `import scalarintern` gives without importing it by name.
    _SUBMODULES = {"buffers", "dsl_adapter", "figures", "launch", "launchers", "ledger"}
    _SUBMODULES |= {"registry", "store", "tracing"}
    _OF_REGISTRY = {"ClassStats", "Finding", "RegistryStats", "ScalarRegistry"}

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version

            try:
                return version("scalarintern")
            except PackageNotFoundError:  # a folder on the path, not installed: help() works on
                pass
        if name not in _SUBMODULES and name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        if name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")
        home = "registry" if name in _OF_REGISTRY else "dsl_adapter"
        value = getattr(import_module(f"{__name__}.{home}"), name)
        return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _dsl_import_begins() -> None:
    from .dsl_adapter import dsl_import_begins

    dsl_import_begins()


def _apply_when_loaded() -> None:
    if _os.environ.get("SCALARINTERN", "1") == "0":
        return
    _import_hook.arm(_dsl_import_begins)
    # Armed first: a DSL that another thread begins to import now is seen by one or the other.
    if "cutlass" in _sys.modules or f"{__name__}.dsl_adapter" in _sys.modules:
        from .dsl_adapter import install

        install()


_apply_when_loaded()
