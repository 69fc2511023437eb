"""``scalarintern repro``: the growth report's loop, stock and interned, side by side."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from scalarintern.cli import terminal
from scalarintern.tools import growth, releases

_DESCRIPTION = """\
Runs the loop of the RSS growth report, with its constants and the collector off: as the release
is, with interned scalars, and with the kernel calls left out, which is what the script keeps on
purpose. Each in a fresh process. No GPU is needed.
"""
_EPILOG = """\
examples:
  scalarintern repro                          the installed release
  scalarintern repro --dsl 4.6.1              a release that leaks, in an environment of its own
  scalarintern repro --dsl 4.6.1 --plot growth.png

10,000 stock steps take about 1 GB on a release that leaks. Exit code 0: interned grew no more
than the script's own payload and 2 MB; 1: it grew more; 2: could not be measured.
"""
_ROWS = 10


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "repro",
        help="run the growth report's script, stock and interned",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--steps",
        type=terminal.positive,
        default=10_000,
        metavar="N",
        help="steps of the loop (default: 10000)",
    )
    parser.add_argument(
        "--dsl",
        metavar="RELEASE",
        help="measure this release of nvidia-cutlass-dsl, in a cached environment",
    )
    parser.add_argument(
        "--plot",
        type=terminal.picture_path,
        metavar="FILE",
        help="draw the growth into a .png, .svg or .pdf file",
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument(
        "--force", action="store_true", help="run even where the stock loop may not fit in memory"
    )
    parser.set_defaults(run=run, prog=parser.prog)


def run(options: argparse.Namespace) -> int:
    """Measure, then show."""
    if not options.json:
        terminal.need("rich", "the table")
    if options.plot:
        terminal.need("matplotlib", "--plot")
    report = _measure(options)
    if options.plot:
        draw(report, options.plot)
    if options.json:
        terminal.print_json(terminal.as_json(report) | {"verdict": verdict(report)})
    else:
        _show(report)
        if options.plot:
            print(f"Wrote {options.plot}")
    return 0 if report.healthy else 1


def _measure(options: argparse.Namespace) -> growth.Report:
    if importlib.util.find_spec("rich") is None or not sys.stderr.isatty():
        return _measure_quietly(options)
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=terminal.console(errors=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("preparing", total=None, note="")
        python = None
        if options.dsl:
            python = releases.environment_python(
                options.dsl, notify=lambda said: bar.update(task, description=said)
            )

        def progress(mode: str, step: int) -> None:
            done = growth.MODES.index(mode) * options.steps + step
            note = f"{step:,} of {options.steps:,} steps"
            bar.update(
                task,
                description=mode,
                total=len(growth.MODES) * options.steps,
                completed=done,
                note=note,
            )

        return growth.run_report(
            options.steps, python=python, progress=progress, force=options.force
        )


def _measure_quietly(options: argparse.Namespace) -> growth.Report:
    """Measure where no bar can be drawn, as in a log: a line for each part."""

    def notify(said: str) -> None:
        print(f"scalarintern repro: {said}", file=sys.stderr, flush=True)

    def progress(mode: str, step: int) -> None:
        if step == 0:
            notify(f"running {mode}")

    python = releases.environment_python(options.dsl, notify=notify) if options.dsl else None
    return growth.run_report(options.steps, python=python, progress=progress, force=options.force)


def verdict(report: growth.Report) -> list[str]:
    """Say in sentences what the report shows."""
    stock, interned, payload = report.stock, report.interned, report.payload
    lines = []
    if report.stock_leaks:
        lines.append(
            f"nvidia-cutlass-dsl {report.release} leaks: one stock call leaves "
            f"{stock.left_by_one_call} objects that only the collector frees. "
            f"{growth.FIXED_IN} is the release that fixed it."
        )
        lines.append(
            f"Growth: {stock.growth_mb:,.0f} MB stock, {interned.growth_mb:,.1f} MB interned, "
            f"{payload.growth_mb:,.1f} MB for the script's own payload."
        )
    else:
        lines.append(
            f"nvidia-cutlass-dsl {report.release} does not leak: one stock call leaves no "
            f"unreachable object. {growth.FIXED_IN} is the release that fixed it."
        )
        lines.append(
            f"Growth: {stock.growth_mb:,.1f} MB stock, {interned.growth_mb:,.1f} MB interned, "
            f"{payload.growth_mb:,.1f} MB for the script's own payload."
        )
    lines.append(
        f"Time: {stock.seconds:,.2f} s stock, {interned.seconds:,.2f} s interned, "
        f"{stock.seconds / max(interned.seconds, 1e-9):.1f} times faster."
    )
    if not report.healthy:
        lines.append(
            f"Interned grew by {report.over_payload_mb:,.1f} MB more than the payload, or left "
            f"{interned.left_by_one_call} objects a call: this should not be. Please report it "
            "with the output of `scalarintern doctor --json`."
        )
    return lines


def _show(report: growth.Report) -> None:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"nvidia-cutlass-dsl {report.release}, Python {report.stock.python}, gc off (MB, s)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in (
        "\nstep",
        "RSS\nstock",
        "RSS\ninterned",
        "growth\nstock",
        "growth\ninterned",
        "growth\npayload",
        "time\nstock",
        "time\ninterned",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    runs = (report.stock, report.interned, report.payload)
    rows = list(zip(*(one.samples for one in runs), strict=True))
    stride = max(1, (len(rows) - 1) // _ROWS)
    for stock, interned, payload in rows[::stride]:
        grown = [
            sample.rss_mb - one.samples[0].rss_mb
            for one, sample in zip(runs, (stock, interned, payload), strict=True)
        ]
        table.add_row(
            f"{stock.step:,}",
            f"{stock.rss_mb:,.0f}",
            f"{interned.rss_mb:,.0f}",
            *(f"{value:,.1f}" for value in grown),
            f"{stock.seconds:,.2f}",
            f"{interned.seconds:,.2f}",
        )
    out = terminal.console()
    out.print(table)
    for line in verdict(report):
        out.print(line, soft_wrap=True)


def draw(report: growth.Report, path: Path) -> None:
    """Draw growth against steps, on the whole and close to the payload.

    Raises:
        ToolError: matplotlib is missing or the file cannot be written.
    """
    terminal.need("matplotlib", "--plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    runs = (report.stock, report.interned, report.payload)
    looks = (("stock", "#c44e52", "-"), ("interned", "#2f7f4f", "-"), ("payload", "#555555", "--"))
    for one, (label, colour, line) in zip(runs, looks, strict=True):
        steps = [sample.step for sample in one.samples]
        grown = [sample.rss_mb - one.samples[0].rss_mb for sample in one.samples]
        seconds = [sample.seconds for sample in one.samples]
        for axes, values in ((left, grown), (right, grown if report.stock_leaks else seconds)):
            axes.plot(steps, values, color=colour, linestyle=line, linewidth=2, label=label)
    left.set_title("growth of resident memory, MB", fontsize=10)
    if report.stock_leaks:
        top = 1.5 * max(report.interned.growth_mb, report.payload.growth_mb, 1.0)
        right.set_ylim(-0.05 * top, top)
        right.set_title("the same, close to the payload, MB", fontsize=10)
    else:
        right.set_title("time, s", fontsize=10)
    left.legend(frameon=False)
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
        axes.locator_params(axis="x", nbins=5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    figure.suptitle(
        f"nvidia-cutlass-dsl {report.release}: stock {report.stock.growth_mb:+,.0f} MB, "
        f"interned {report.interned.growth_mb:+,.1f} MB, {report.steps:,} steps, gc off",
        fontsize=11,
    )
    with terminal.written_whole(path) as temporary:
        figure.savefig(temporary, dpi=150)
