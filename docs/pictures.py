"""Makes the pictures of the commands in docs/_static from what the commands print.

    python docs/pictures.py            # needs the cli extra; takes some minutes

The place of the interpreter and of the packages is written as ``.venv``, so that a
picture holds no path of the machine that it was made on; nothing else is changed.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

STATIC = Path(__file__).resolve().parent / "_static"
COLUMNS = 100
COMMANDS = {
    "doctor": ["doctor"],
    "repro-4.6.1": ["repro", "--dsl", "4.6.1", "--plot", str(STATIC / "growth-4.6.1.png")],
    "repro-newest": ["repro", "--plot", str(STATIC / "growth-newest.png")],
}


def picture(name: str, arguments: list[str]) -> None:
    """Run one command and write its screen to an SVG file."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    ran = subprocess.run(
        [sys.executable, "-m", "scalarintern", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    if not ran.stdout:
        sys.exit(f"scalarintern {arguments[0]} printed nothing; run it by itself to see why")
    shown = ran.stdout.replace(f"{STATIC}{os.sep}", "").replace(sys.prefix, ".venv")
    shown = shown.replace(str(STATIC.parents[1]), ".")
    title = " ".join(["scalarintern", *(Path(word).name for word in arguments)])
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), legacy_windows=False)
    console.print(Text.from_ansi(shown.rstrip()))
    svg = console.export_svg(title=title, theme=SVG_EXPORT_THEME)
    # rich refers to a font on the network; a picture of ours loads nothing.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    (STATIC / f"screen-{name}.svg").write_text(svg)
    print(f"Wrote docs/_static/screen-{name}.svg (exit code {ran.returncode})")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or COMMANDS:
        picture(chosen, COMMANDS[chosen])
