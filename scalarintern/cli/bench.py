"""``scalarintern bench``: what interning gains on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from scalarintern.cli import terminal
from scalarintern.tools import speed

_DESCRIPTION = """\
Times marshalling and launching with the installed release, stock against interned and, where
apache-tvm-ffi is installed, the same launch through TVM-FFI. Both are timed turn about in one
process, and in several processes; the ratio is what counts. No GPU is needed.
"""
_EPILOG = """\
examples:
  scalarintern bench
  scalarintern bench --plot speed.png --output speed.json
  python -m pyperf stats speed.json           the file is a pyperf suite
"""
_NAMES = {"stock": "stock", "interned": "interned", "tvm_ffi": "TVM-FFI"}
_COLOURS = {"stock": "#c44e52", "interned": "#2f7f4f", "tvm_ffi": "#4c72b0"}


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "bench",
        help="time marshalling and launching, stock against interned",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--processes",
        type=terminal.positive,
        default=3,
        metavar="N",
        help="fresh processes, one after the other (default: 3)",
    )
    parser.add_argument(
        "--rounds",
        type=terminal.positive,
        default=7,
        metavar="N",
        help="rounds in each process (default: 7)",
    )
    parser.add_argument(
        "--output",
        type=terminal.json_path,
        metavar="FILE",
        help="keep all values in this file, as a pyperf suite",
    )
    parser.add_argument(
        "--plot",
        type=terminal.picture_path,
        metavar="FILE",
        help="draw a bar chart into a .png, .svg or .pdf file",
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.set_defaults(run=run, prog=parser.prog)


def run(options: argparse.Namespace) -> int:
    """Time, then show."""
    terminal.need("pyperf", "bench")
    if not options.json:
        terminal.need("rich", "the table")
    if options.plot:
        terminal.need("matplotlib", "--plot")
    found = _measure(options)
    suite = pyperf_suite(found)
    if options.output:
        with terminal.written_whole(options.output) as temporary:
            suite.dump(str(temporary), replace=True)
    if options.plot:
        draw(found, options.plot)
    if options.json:
        terminal.print_json(_as_json(found))
        return 0
    _show(found, suite)
    for path in (options.output, options.plot):
        if path:
            print(f"Wrote {path}")
    return 0


def _measure(options: argparse.Namespace) -> speed.Speed:
    if not sys.stderr.isatty() or options.json:
        return speed.run_speed(processes=options.processes, rounds=options.rounds)
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=terminal.console(errors=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("importing the DSL", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, description="timing", completed=done, total=total)

        return speed.run_speed(
            processes=options.processes, rounds=options.rounds, progress=progress
        )


def pyperf_suite(found: speed.Speed) -> Any:
    """Return the values as a pyperf suite, a benchmark for each case and mode."""
    import pyperf

    benchmarks = []
    for case in found.cases:
        for mode, values in case.seconds.items():
            size = len(values) // case.processes
            metadata = {
                "name": f"{case.key}-{mode}",
                "description": case.title,
                "unit": "second",
                "python_version": found.python,
                "nvidia_cutlass_dsl": found.release,
            }
            runs = [
                pyperf.Run(values[at : at + size], metadata=metadata, collect_metadata=False)
                for at in range(0, len(values), size)
            ]
            benchmarks.append(pyperf.Benchmark(runs))
    return pyperf.BenchmarkSuite(benchmarks)


def _as_json(found: speed.Speed) -> dict[str, Any]:
    record = terminal.as_json(found)
    for plain, case in zip(record["cases"], found.cases, strict=True):
        others = [mode for mode in case.seconds if mode != "stock"]
        plain["median_seconds"] = {mode: case.median(mode) for mode in case.seconds}
        plain["times_faster_than_stock"] = {mode: case.ratio(mode) for mode in others}
    return record


def _show(found: speed.Speed, suite: Any) -> None:
    from rich import box
    from rich.table import Table

    modes = [mode for mode in _NAMES if any(mode in case.seconds for case in found.cases)]
    table = Table(
        title=f"nvidia-cutlass-dsl {found.release}, Python {found.python}; "
        "microseconds, median and deviation",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("call")
    for mode in modes:
        table.add_column(_NAMES[mode], justify="right", no_wrap=True)
    table.add_column("times\nfaster", justify="right", no_wrap=True)
    for case in found.cases:
        cells = []
        for mode in modes:
            if mode not in case.seconds:
                cells.append("")
                continue
            values = suite.get_benchmark(f"{case.key}-{mode}")
            cells.append(f"{1e6 * values.median():.3f} ±{1e6 * values.median_abs_dev():.3f}")
        table.add_row(case.title, *cells, f"{case.ratio():.1f}")
    out = terminal.console()
    out.print(table)
    for name, why in found.left_out.items():
        out.print(f"Left out, {_NAMES.get(name, name)}: {why}", markup=False, soft_wrap=True)


def draw(found: speed.Speed, path: Path) -> None:
    """Draw a group of bars for each case, on a logarithmic scale.

    Raises:
        ToolError: matplotlib is missing or the file cannot be written.
    """
    terminal.need("matplotlib", "--plot")
    from matplotlib.figure import Figure

    modes = [mode for mode in _NAMES if any(mode in case.seconds for case in found.cases)]
    figure = Figure(figsize=(8.4, 1.2 + 0.65 * len(found.cases)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(modes)
    for index, mode in enumerate(modes):
        rows = [row for row, case in enumerate(found.cases) if mode in case.seconds]
        values = [1e6 * found.cases[row].median(mode) for row in rows]
        places = [row + (index - (len(modes) - 1) / 2) * height for row in rows]
        bars = axes.barh(places, values, height, color=_COLOURS[mode], label=_NAMES[mode])
        labels = [
            f"{value:.2f}" + (f"  ({found.cases[row].ratio():.1f}x)" if mode == "interned" else "")
            for row, value in zip(rows, values, strict=True)
        ]
        axes.bar_label(bars, labels, padding=3, fontsize=8)
    axes.set_yticks(range(len(found.cases)), [case.title for case in found.cases], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.margins(x=0.25)
    axes.set_xlabel("microseconds a call, logarithmic; in brackets: times faster than stock")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    axes.set_title(
        f"nvidia-cutlass-dsl {found.release}, Python {found.python}", fontsize=10, loc="left"
    )
    with terminal.written_whole(path) as temporary:
        figure.savefig(temporary, dpi=150)
