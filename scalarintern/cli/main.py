"""Reads the command line and runs the command that it names."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from scalarintern.cli import bench, doctor, repro, run
from scalarintern.tools._child import ToolError

_COMMANDS = (repro, doctor, run, bench)
_EXIT_CODES = "exit codes: 0 all is well; 1 something needs attention; 2 could not be done"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in a sentence, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        """Print the message and where to find help, and exit with 2."""
        self.exit(2, f"{self.prog}: {message}\nTry: {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(
        prog="scalarintern",
        description="Interned scalars for CuTe DSL: see the leak, check the fix, measure the gain.",
        epilog=_EXIT_CODES,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `argv` excludes the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    if arguments[:1] == ["run"]:
        # Everything from the program on belongs to the program, options included.
        own, program = run.split(arguments[1:])
        options = parser.parse_args(["run", *own])
        options.program = program
    else:
        options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except ToolError as error:
        print(f"{options.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{options.prog}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has left, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
