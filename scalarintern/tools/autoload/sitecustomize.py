"""Applies scalarintern when Python starts, in processes under ``scalarintern run``.

``scalarintern run`` puts this folder at the front of ``PYTHONPATH``. Python imports the first
``sitecustomize`` that it finds; this one runs the one that it hides, and takes its own folder off
``sys.path`` again, so that the program sees the path that it would have had.
"""

import os
import sys


def _run_hidden() -> None:
    """Run the ``sitecustomize`` that would have been imported without this one, if any."""
    from importlib import util

    this = sys.modules.pop("sitecustomize")
    spec = util.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        sys.modules["sitecustomize"] = this
        return
    module = util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _apply(package: str) -> None:
    """Load the very package that this file belongs to, and nothing else from beside it.

    A child may run another Python, on whose path the rest of that ``site-packages`` must not be.
    """
    from importlib import util

    if "scalarintern" not in sys.modules:
        spec = util.spec_from_file_location(
            "scalarintern",
            f"{package}{os.sep}__init__.py",
            submodule_search_locations=[package],
        )
        assert spec is not None and spec.loader is not None
        module = util.module_from_spec(spec)
        sys.modules["scalarintern"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["scalarintern"]
            raise
    try:
        from scalarintern.tools import watching

        watching.start_from_environment()
    except BaseException:
        # What fails now would fail again, aloud, when the program imports the DSL.
        from scalarintern import import_hook

        import_hook.disarm()
        raise


_folder = __file__.rsplit(os.sep, 1)[0]
_package = _folder.rsplit(os.sep, 2)[0]
sys.path[:] = [entry for entry in sys.path if entry != _folder]
try:
    _run_hidden()
finally:
    try:
        _apply(_package)
    except Exception as _error:
        # The program runs as it would have; only the process that was asked for says so.
        if os.environ.get("SCALARINTERN_RUN") == str(os.getpid()):
            print(
                f"scalarintern run: not applied: {type(_error).__name__}: {_error}",
                file=sys.stderr,
            )
