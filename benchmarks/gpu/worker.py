"""One part of the GPU benchmarks in one fresh process: ``worker PART MODE OUT``.

Results go to OUT as lines of JSON, each as soon as it is there, so that a
process stopped at its time limit leaves what it had.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

#: Exit status of a process that found no GPU: the others need not be tried.
NO_GPU = 3

#: stock: the release alone. interned: shared scalars, launches as the release
#: makes them. fast: shared scalars and the short way to C.
MODES = ("stock", "interned", "fast")


class Sink:
    """Where results go: a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def put(self, kind: str, **values: Any) -> None:
        self._file.write(json.dumps({"kind": kind, **values}) + "\n")
        self._file.flush()


def enter(mode: str) -> dict[str, Any]:
    """Load the DSL in the mode asked for, and say what was applied.

    Raises:
        RuntimeError: The package loaded but did not apply.
    """
    os.environ["SCALARINTERN"] = "0" if mode == "stock" else "1"
    os.environ["SCALARINTERN_LAUNCH"] = "1" if mode == "fast" else "0"
    if mode == "stock":
        import cutlass.cute

        return {"installed": False, "launch": False, "reason": ""}
    import cutlass.cute  # noqa: F401

    import scalarintern

    record = scalarintern.install()
    if not record.installed:
        raise RuntimeError(f"scalarintern did not apply: {record.reason}")
    return {
        "installed": record.installed,
        "launch": record.launch,
        "reason": record.launch_reason,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu.worker", description=__doc__)
    parser.add_argument("part", choices=("check", "train", "launch", "scalars", "busy"), nargs="+")
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--launches", type=int, default=100_000, help="of the training loop")
    parser.add_argument("--rounds", type=int, default=40, help="of each timing")
    options = parser.parse_args(arguments)

    sink = Sink(options.out)
    began = time.perf_counter()
    applied = enter(options.mode)
    from . import device

    if not device.available():
        print("No NVIDIA GPU here that torch can use.", file=sys.stderr)
        return NO_GPU
    sink.put("facts", **device.facts(), **applied, start_s=round(time.perf_counter() - began, 1))
    failed = False
    for part in options.part:
        began = time.perf_counter()
        try:
            if part == "check":
                from .check import run as check

                check(sink, options.mode)
            elif part == "train":
                from .train import run as train

                train(sink, options.mode, options.launches)
            else:
                from . import cost

                getattr(cost, part)(sink, options.mode, options.rounds)
        except Exception as error:  # the parts after it can still run
            failed = True
            sink.put("error", part=part, error=f"{type(error).__name__}: {error}"[:2000])
            import traceback

            traceback.print_exc()
        sink.put("done", part=part, seconds=round(time.perf_counter() - began, 1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
