"""What the commands share: the terminal, the optional packages, and files written whole."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from scalarintern.tools._child import ToolError

if TYPE_CHECKING:
    from rich.console import Console

PICTURES = (".png", ".svg", ".pdf")


def need(module: str, purpose: str) -> Any:
    """Import a package of the ``cli`` extra.

    Raises:
        ToolError: it is not installed; names the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ToolError(
            f"{purpose} needs {package}, which is not installed: pip install 'scalarintern[cli]'"
        ) from error


def console(*, errors: bool = False) -> Console:
    """Return a rich console on standard output, or on standard error for progress."""
    from rich.console import Console

    made = Console(stderr=errors, highlight=False)
    if not made.is_terminal:
        # A log or a pipe: long paths in one piece.
        made = Console(stderr=errors, highlight=False, width=200)
    return made


def print_json(record: Mapping[str, Any]) -> None:
    """Print one JSON object for machines."""
    json.dump(record, sys.stdout, indent=2)
    print()


def as_json(record: Any) -> dict[str, Any]:
    """Return an attrs record as a plain mapping, with its figures worked out from others."""
    plain = attrs.asdict(record)
    for name, member in vars(type(record)).items():
        if isinstance(member, property):
            plain[name] = getattr(record, name)
    return plain


def picture_path(text: str) -> Path:
    """Parse the name of a picture file; an argparse type."""
    path = Path(text)
    if path.suffix.lower() not in PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r} must end in one of {', '.join(PICTURES)}")
    return _in_folder(path)


def json_path(text: str) -> Path:
    """Parse the name of a file to write; an argparse type."""
    return _in_folder(Path(text))


def _in_folder(path: Path) -> Path:
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of {str(path)!r} does not exist")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{str(path)!r} is a folder")
    return path


def positive(text: str) -> int:
    """Parse a whole number of at least 1; an argparse type."""
    try:
        number = int(text.replace("_", "").replace(",", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`, renamed to it when the block ends well.

    Raises:
        ToolError: the folder cannot be written.
    """
    temporary = None
    try:
        handle, name = tempfile.mkstemp(path.suffix, ".scalarintern-", path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError as error:
        raise ToolError(f"{path} could not be written: {error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
