"""``scalarintern run``: a program with the adapter applied, without a change to its code."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalarintern.cli import terminal
from scalarintern.tools import watching
from scalarintern.tools._child import ToolError

_AUTOLOAD = Path(watching.__file__).with_name("autoload")

_DESCRIPTION = """\
Runs a Python program with the adapter applied to it and to the Python processes that it starts
(torchrun, multiprocessing, subprocess), without a change to its code. The program becomes this
very process: arguments, exit code, signals and tracebacks are its own.
"""
_EPILOG = """\
examples:
  scalarintern run train.py --epochs 3
  scalarintern run --stats -m torch.distributed.run --nproc-per-node 8 train.py
  scalarintern run --watch 10 --watch-file rss.jsonl train.py

It works through PYTHONPATH: a child Python that is started with -S, -I or -E, or with a
PYTHONPATH of its own, is not reached. --watch runs a thread in each process, and Python 3.12 and
newer warn where a process with threads is forked.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "run",
        help="run a program with the adapter applied",
        usage="scalarintern run [--stats] [--watch SECONDS] [--watch-file FILE] "
        "(SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--stats", action="store_true", help="print the registry's figures when a process ends"
    )
    parser.add_argument(
        "--watch",
        type=_seconds,
        metavar="SECONDS",
        help="print memory and the registry's figures every so many seconds",
    )
    parser.add_argument(
        "--watch-file",
        type=terminal.json_path,
        metavar="FILE",
        help="add what --watch reads to this file, a line of JSON each (alone: every 10 s)",
    )
    parser.set_defaults(run=run, prog=parser.prog, program=[])


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide the command line into this command's own options and the program with its own."""
    own = list(arguments)
    at = 0
    while at < len(own):
        word = own[at]
        if word == "--":
            return own[:at], own[at + 1 :]
        if word in ("-", "-m", "-c") or word[:2] in ("-m", "-c") or not word.startswith("-"):
            return own[:at], own[at:]
        at += 2 if word in ("--watch", "--watch-file") else 1
    return own, []


def run(options: argparse.Namespace) -> int:
    """Turn this process into the program."""
    if not options.program:
        raise ToolError("give the program: a script, -m MODULE or -c CODE")
    if options.program[0] in ("-m", "-c") and len(options.program) < 2:
        raise ToolError(f"{options.program[0]} needs an argument")
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise ToolError("Python runs with -I, -E or -S, which keeps the adapter out: leave it off")
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, *options.program]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(sys.executable, command, _environment(options))
    except OSError as error:
        raise ToolError(f"could not start {sys.executable}: {error}") from error


def _environment(options: argparse.Namespace) -> dict[str, str]:
    environment = dict(os.environ)
    path = [str(_AUTOLOAD)]
    if environment.get("PYTHONPATH"):
        path.append(environment["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(path)
    environment[watching.MAIN] = str(os.getpid())
    for name in (watching.STATS, watching.WATCH, watching.WATCH_FILE):
        environment.pop(name, None)
    if options.stats:
        environment[watching.STATS] = "1"
    if options.watch or options.watch_file:
        environment[watching.WATCH] = str(options.watch or 10.0)
    if options.watch_file:
        environment[watching.WATCH_FILE] = str(options.watch_file.absolute())
    return environment


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds of at least 0.01")
    return seconds
