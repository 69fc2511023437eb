"""``python -m benchmarks.gpu``: every part, stock against interned, one table.

Needs a machine with an NVIDIA GPU, torch and nvidia-cutlass-dsl, and matplotlib
for the plots. Several releases in one go: ``--site`` once for each, with the
folders that hold it (joined as in PYTHONPATH).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import driver, report

ORDER = ("launch", "train", "check", "cost")


def jobs(parts: list[str], modes: list[str], sites: list[str]) -> list[driver.Job]:
    """What to run, the most telling first."""
    listed: list[driver.Job] = []
    for part in ORDER:
        if part not in parts:
            continue
        names = {"cost": ("scalars", "busy")}.get(part, (part,))
        listed += [
            driver.Job(names, mode, site, alone=part != "check") for site in sites for mode in modes
        ]
    return listed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=ORDER, default=list(ORDER))
    parser.add_argument(
        "--modes",
        nargs="+",
        choices=("stock", "interned", "fast"),
        default=["stock", "interned", "fast"],
    )
    parser.add_argument("--site", action="append", metavar="FOLDERS", help="a release to run on")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder for results")
    parser.add_argument("--name", default="gpu", help="what the files of results begin with")
    parser.add_argument("--budget", type=float, default=1800, help="seconds for everything")
    parser.add_argument("--launches", type=int, default=100_000, help="of the training loop")
    parser.add_argument("--rounds", type=int, default=40, help="of each timing")
    parser.add_argument("--no-plots", action="store_true")
    options = parser.parse_args(arguments)

    extra = ["--launches", str(options.launches), "--rounds", str(options.rounds)]
    outcomes = driver.run_all(
        jobs(options.parts, options.modes, options.site or [""]),
        options.budget,
        extra,
        lambda so_far: report.write(so_far, options.out, options.name),
    )
    print(flush=True)
    print(report.write(outcomes, options.out, options.name), flush=True)
    if not options.no_plots:
        for path in report.plots(outcomes, options.out, options.name):
            print(f"Wrote {path}")
    print(f"Wrote {options.out / options.name}.json and .txt")
    return 0 if all(outcome.ended == "ok" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
