"""Writes a process's memory and registry figures now and then, and a summary at its end.

Started by ``scalarintern run`` through the environment, in the program and in the Python processes
that it starts. A process that never loads the DSL has nothing to tell and stays silent, unless it
is the program itself.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time

from scalarintern.metrics import resident_bytes, stats_dict

#: Set by ``scalarintern run`` to the number of the program's own process.
MAIN = "SCALARINTERN_RUN"
STATS = "SCALARINTERN_RUN_STATS"
WATCH = "SCALARINTERN_RUN_WATCH"
WATCH_FILE = "SCALARINTERN_RUN_WATCH_FILE"


def start_from_environment() -> None:
    """Start what the environment asks for, in this process."""
    if os.environ.get(STATS):
        atexit.register(_print_summary, os.getpid())
    seconds = os.environ.get(WATCH)
    if seconds:
        watch(float(seconds), os.environ.get(WATCH_FILE))


def reading() -> dict[str, float]:
    """Return one line of the log: when, which process, its memory and the registry's figures."""
    figures: dict[str, float] = {"time": time.time(), "pid": os.getpid()}
    figures["rss_bytes"] = resident_bytes()
    figures.update(stats_dict(prefix=""))
    return figures


def watch(seconds: float, path: str | None = None) -> None:
    """Write a reading each `seconds`, from a thread, and one at the end.

    Args:
        seconds: time between two readings.
        path: a file to which each reading is added as a line of JSON; None writes a sentence to
            standard error.
    """
    process = os.getpid()
    ending = threading.Event()

    def follow() -> None:
        while not ending.wait(seconds):
            _write(process, path)

    def finish() -> None:
        ending.set()
        _write(process, path)

    threading.Thread(target=follow, name="scalarintern-watch", daemon=True).start()
    atexit.register(finish)


def _write(process: int, path: str | None) -> None:
    if not _has_something_to_tell(process):
        return
    figures = reading()
    if path is None:
        _say(sentence(figures))
        return
    line = (json.dumps(figures) + "\n").encode()
    try:
        # One write at the end of the file, so that lines of several processes do not mix.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError as error:
        _say(f"scalarintern run: {path}: {error}")


def _print_summary(process: int) -> None:
    if _has_something_to_tell(process):
        _say(sentence(reading()))


def _has_something_to_tell(process: int) -> bool:
    """Tell whether this is the process that began, not a fork of it, and is worth a line."""
    if os.getpid() != process:
        return False
    return "cutlass" in sys.modules or os.environ.get(MAIN) == str(process)


def sentence(figures: dict[str, float]) -> str:
    """Put a reading into words."""
    parts = [f"RSS {figures['rss_bytes'] / 2**20:,.0f} MB"]
    if figures["installed"]:
        parts += [
            f"{figures[name]:,.0f} {name}"
            for name in ("misses", "hits", "live", "pointers", "evicted")
            if name in figures
        ]
        parts.append(f"{figures['bytes'] / 1024:,.0f} KB in the registry")
    elif "cutlass" not in sys.modules:
        parts.append("nvidia-cutlass-dsl is not loaded")
    else:
        parts.append("the adapter is not applied: see `scalarintern doctor`")
    return f"scalarintern[{figures['pid']:.0f}]: {', '.join(parts)}"


def _say(text: str) -> None:
    # Past sys.stderr: a thread that the interpreter's end stops inside its lock aborts Python.
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
