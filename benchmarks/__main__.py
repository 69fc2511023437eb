"""The speed table: what interning gains on this machine, and whether that is what was promised.

    python -m benchmarks --json bench.json

Stock and interned are timed turn about, in one run: the ratios count, not the microseconds.
No GPU is needed; ``python -m benchmarks.gpu`` is for those who have one. Exit code 0 if every
target is met, 1 if one is missed, 2 if something could not be timed at all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

import scalarintern
from scalarintern.cli import terminal
from scalarintern.tools import speed
from scalarintern.tools._child import ToolError, child_environment, events, package_path

#: Releases whose marshalling was slower still: more is asked of a hit there.
SLOW_HITS = ("4.2.", "4.3.", "4.4.", "4.5.", "4.6.0", "4.6.1")
NOOP = {
    "raw": "launch, 3 raw numbers",
    "objects": "launch, 3 scalar objects held",
    "rebuilt": "launch, 3 scalar objects made anew",
    "keywords": "launch, 3 raw numbers, 2 by keyword",
    "new int": "launch, 3 raw numbers, one new each time",
    "bare": "bare C call",
    "tvm_ffi raw": "TVM-FFI, 3 raw numbers",
    "tvm_ffi objects": "TVM-FFI, 3 scalar objects held",
    "tvm_ffi rebuilt": "TVM-FFI, 3 scalar objects made anew",
}
WRAPPER = {
    "wrapper": "wrapper: 4 make_ptr, 3 numbers, a CUstream each call",
    "build": "  making its arguments alone",
    "reused": "  launch with its arguments reused",
    "bare": "  bare C call",
}
SCALING = {"same": "the same values", "other": "others each time"}


@attrs.frozen
class Target:
    """What is asked of a row; None asks nothing."""

    faster: float | None = None
    of_bare: float | None = None
    microseconds: float | None = None

    def __str__(self) -> str:
        """Say it in words."""
        words = []
        if self.faster is not None:
            slower = self.faster < 1
            words.append(f"≤ {1 / self.faster:g}x slower" if slower else f"≥ {self.faster:g}x")
        if self.of_bare is not None:
            words.append(f"≤ {self.of_bare:g}x bare")
        if self.microseconds is not None:
            words.append(f"≤ {shown(self.microseconds)}")
        return ", ".join(words)


@attrs.frozen
class Row:
    """One line: microseconds a call in both modes, and how they compare."""

    part: str
    key: str
    title: str
    stock: float | None
    interned: float
    faster: float | None = None
    of_bare: float | None = None
    target: Target | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        least, most, longest = attrs.astuple(self.target)
        return (
            (least is None or (self.faster is not None and self.faster >= least))
            and (most is None or (self.of_bare is not None and self.of_bare <= most))
            and (longest is None or self.interned <= longest)
        )


def targets(release: str) -> dict[str, Target]:
    """Return what is asked, by the key of the row."""
    slow = release.startswith(SLOW_HITS)
    miss = Target(faster=1 / 1.5)
    return {
        "hit_int": Target(faster=15 if slow else 6),
        "hit_float": Target(faster=12 if slow else 5),
        "intern_int": Target(faster=8),
        "intern_float": Target(faster=6),
        "miss": miss,
        "miss_float": miss,
        "miss_intern": miss,
        "import": Target(microseconds=30_000),
        "raw": Target(faster=10, of_bare=3.5),
        "objects": Target(faster=5),
        "each same": Target(microseconds=0.15),
        "each other": Target(microseconds=0.15),
    }


def registry_rows(found: speed.Speed, import_seconds: list[float]) -> Iterator[Row]:
    """Yield the rows of `scalarintern bench` that launch nothing, and the import."""
    asked = targets(found.release)
    for case in found.cases:
        if not case.key.startswith("launch"):
            microseconds = [1e6 * case.median(mode) for mode in ("stock", "interned")]
            yield Row(
                "registry", case.key, case.title, *microseconds, faster=case.ratio(),
                target=asked.get(case.key),
            )  # fmt: skip
    yield Row(
        "registry", "import", "import scalarintern, DSL not loaded", None,
        1e6 * statistics.median(import_seconds), target=asked["import"],
    )  # fmt: skip


def launch_rows(times: dict[str, Any], release: str) -> Iterator[Row]:
    """Yield the rows of launches: three scalars, a wrapper, and from 1 to 64 scalars."""
    asked = targets(release)

    def row(table: str, key: str, title: str, floor: float | None = None) -> Row:
        stock, interned = times[table]["stock"][key], times[table]["interned"][key]
        return Row(
            table, key, title, stock, interned,
            # The C call and TVM-FFI run none of what interning changes.
            faster=None if key in ("bare", "build") or "tvm" in key else stock / interned,
            of_bare=floor and interned / floor,
            target=asked.get(key),
        )  # fmt: skip

    for table, titles in (("noop", NOOP), ("wrapper", WRAPPER)):
        floor = times[table]["interned"]["bare"]
        for key, title in titles.items():
            if key in times[table]["stock"]:
                yield row(table, key, title, floor)
    for kind, words in SCALING.items():
        counts = [int(key.split()[1]) for key in times["scaling"]["stock"] if key.startswith(kind)]
        for count in counts:
            yield row("scaling", f"{kind} {count}", f"launch, {count} raw, {words}")
        stock, interned = (
            (by_key[f"{kind} {counts[-1]}"] - by_key[f"{kind} {counts[0]}"])
            / (counts[-1] - counts[0])
            for by_key in (times["scaling"]["stock"], times["scaling"]["interned"])
        )
        key = f"each {kind}"
        yield Row(
            "scaling", key, f"  each number more, {words}", stock, interned,
            faster=stock / interned, target=asked[key],
        )  # fmt: skip


def time_import(package: Path, times: int) -> list[float]:
    """Return the seconds that the import takes from compiled files, each in a fresh process."""
    code = (
        "import time; start = time.perf_counter(); import scalarintern; "
        "print(time.perf_counter() - start)"
    )
    run = [sys.executable, "-c", code]
    environment = child_environment(interned=True, isolated=False, package=package)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    seconds = []
    with tempfile.TemporaryDirectory() as compiled:
        environment["PYTHONPYCACHEPREFIX"] = compiled
        for _ in range(times + 1):
            done = subprocess.run(run, env=environment, check=True, stdout=subprocess.PIPE)
            seconds.append(float(done.stdout))
    return seconds[1:]  # the first one compiled


def machine() -> dict[str, Any]:
    """Return date, Python and CPU as pyperf knows them, without the machine's name."""
    import pyperf

    known = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    names = (
        "date", "python_version", "python_implementation", "python_compiler", "platform",
        "cpu_model_name", "cpu_count", "cpu_freq", "cpu_config", "load_avg_1min",
    )  # fmt: skip
    return {name: known[name] for name in names if name in known}


def shown(microseconds: float | None) -> str:
    """Return a time for the table: in microseconds, or in ms where those are too many."""
    if microseconds is None:
        return ""
    return f"{microseconds:.3f}" if microseconds < 1000 else f"{microseconds / 1000:.1f} ms"


def table(rows: list[Row], title: str) -> Any:
    """Return the rich table of all rows."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    made.add_column("call")
    for head in ("stock", "interned", "times\nfaster", "x bare\nC call"):
        made.add_column(head, justify="right", no_wrap=True)
    made.add_column("target", no_wrap=True)
    made.add_column("", no_wrap=True)
    marks = {None: "", True: "[green]met[/]", False: "[bold red]MISSED[/]"}
    part = rows[0].part if rows else ""
    for row in rows:
        if row.part != part:
            made.add_section()
            part = row.part
        made.add_row(
            row.title, shown(row.stock), shown(row.interned),
            "" if row.faster is None else f"{row.faster:.2f}",
            "" if row.of_bare is None else f"{row.of_bare:.2f}",
            str(row.target or ""), marks[row.met],
        )  # fmt: skip
    return made


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Time what was asked for and return everything, for the JSON file."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    record: dict[str, Any] = {
        **machine(),
        "scalarintern": getattr(scalarintern, "__version__", "not installed"),
        "fast": options.fast,
        "left_out": {},
    }
    rows: list[Row] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        package_path() as package,
        Progress(*columns, console=terminal.console(errors=True), transient=True) as bar,
    ):
        if options.only in (None, "registry"):
            bar.add_task("timing the registry", total=None)
            processes, rounds = (1, 1) if options.fast else (3, 7)
            found = speed.run_speed(processes=processes, rounds=rounds)
            seconds = time_import(package, 3 if options.fast else 11)
            rows += registry_rows(found, seconds)
            record["nvidia_cutlass_dsl"] = found.release
            record["registry"] = {**attrs.asdict(found), "import_seconds": seconds}
        if options.only in (None, "launch"):
            bar.add_task("timing launches", total=None)
            script = str(Path(__file__).with_name("launch_bench.py"))
            slices = "2" if options.fast else "30"
            [launches] = events(script, (slices,), interned=False, package=package)
            record["nvidia_cutlass_dsl"] = launches["release"]
            record["left_out"] = launches["left_out"]
            record["launch"] = launches["microseconds"]
            if launches["microseconds"]:
                rows += launch_rows(launches["microseconds"], launches["release"])
    record["rows"] = rows
    return record


def main(argv: list[str] | None = None) -> int:
    """Time, show, keep; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n\n    ")[0]
    )
    parser.add_argument("--only", choices=("registry", "launch"), help="time one part alone")
    parser.add_argument(
        "--fast", action="store_true",
        help="a short run, to see that all works: too coarse to fail for a missed target",
    )  # fmt: skip
    parser.add_argument(
        "--json", type=terminal.json_path, metavar="FILE", help="keep everything in this file"
    )
    options = parser.parse_args(argv)
    try:
        for package in ("pyperf", "rich"):
            terminal.need(package, "the speed table")
        record = measure(options)
        rows = record["rows"]
        out = terminal.console()
        title = "nvidia-cutlass-dsl {nvidia_cutlass_dsl}, Python {python_version}, {cpu_model_name}"
        out.print(table(rows, title.format_map(record) + "; microseconds a call"))
        for name, why in record["left_out"].items():
            out.print(f"Left out, {name}: {why}", markup=False, soft_wrap=True)
        missed = [row.title.strip() for row in rows if row.met is False]
        judged = sum(row.met is not None for row in rows)
        out.print(f"{judged - len(missed)} of {judged} targets met")
        if options.json:
            record["rows"] = [{**attrs.asdict(row), "met": row.met} for row in rows]
            with terminal.written_whole(options.json) as temporary:
                temporary.write_text(json.dumps(record, indent=1) + "\n")
            print(f"Wrote {options.json}")
    except ToolError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    if not rows:
        return 2
    return 1 if missed and not options.fast else 0


if __name__ == "__main__":
    sys.exit(main())
