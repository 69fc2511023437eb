"""``scalarintern doctor``: one screen on the health of this environment."""

from __future__ import annotations

import argparse
from typing import Any

from scalarintern.cli import terminal
from scalarintern.tools import diagnosis

_DESCRIPTION = """\
Looks at the installed nvidia-cutlass-dsl with and without the adapter, each in a fresh process:
whether a call leaks, what is patched, whether launches take the short way, and whether every
numeric class marshals to the same bytes.
"""
_EPILOG = """\
Exit code 0: healthy; 1: something needs attention, each such line says what to do; 2: could not
look. `scalarintern doctor --json` is what an issue should carry.
"""
_SIGNS = {
    diagnosis.OK: ("ok", "green"),
    diagnosis.NOTE: ("note", "cyan"),
    diagnosis.ATTENTION: ("LOOK", "bold red"),
}


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="check this environment, on one screen",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of the screen")
    parser.set_defaults(run=run, prog=parser.prog)


def run(options: argparse.Namespace) -> int:
    """Look, then show."""
    if options.json:
        found = diagnosis.diagnose()
        terminal.print_json(terminal.as_json(found))
    else:
        terminal.need("rich", "the screen")
        with terminal.console(errors=True).status("looking; this imports the DSL twice"):
            found = diagnosis.diagnose()
        _show(found)
    return 0 if found.healthy else 1


def _show(found: diagnosis.Diagnosis) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    topic = ""
    for line in found.lines:
        sign, style = _SIGNS[line.status]
        text = Text(line.text)
        if line.todo:
            text.append(f"\n-> {line.todo}", style="bold")
        table.add_row(Text(sign, style), "" if line.topic == topic else line.topic, text)
        topic = line.topic
    out = terminal.console()
    out.print(table)
    count = sum(line.status == diagnosis.ATTENTION for line in found.lines)
    out.print("Healthy." if not count else f"{count} of these need attention.", style="bold")
