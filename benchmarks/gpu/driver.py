"""Runs the parts in fresh processes, each with its time limit, and gathers what they wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from .worker import NO_GPU

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
WORKER = ("-m", "benchmarks.gpu.worker")


@attrs.frozen
class Job:
    """One fresh process: these parts, in this mode, on this release.

    Attributes:
        parts: What it runs, in order.
        mode: stock, interned or fast.
        site: Folders put before the others on the module path; empty for the
            release that is installed.
        limit: Seconds that it may take.
        alone: Whether nothing else may run meanwhile, as it times things.
    """

    parts: tuple[str, ...]
    mode: str
    site: str = ""
    limit: float = 90
    alone: bool = True

    @property
    def name(self) -> str:
        return f"{'+'.join(self.parts)} {self.mode} {Path(self.site.split(os.pathsep)[0]).name}"


@attrs.define
class Outcome:
    """What a job left: its lines, how it ended, and the end of what it printed."""

    job: Job
    lines: list[dict[str, Any]] = attrs.field(factory=list)
    ended: str = "not run"
    seconds: float = 0.0
    output: str = ""

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def facts(self) -> dict[str, Any]:
        return next(iter(self.of("facts")), {})

    @property
    def release(self) -> str:
        return str(self.facts.get("release") or Path(self.job.site.split(os.pathsep)[0]).name)


def run_job(job: Job, extra: list[str], seconds_left: float) -> Outcome:
    """Run one job to its end or its limit, whichever is first."""
    outcome = Outcome(job)
    limit = min(job.limit, seconds_left)
    if limit < 10:
        outcome.ended = "not run: out of time"
        return outcome
    path = [*(part for part in job.site.split(os.pathsep) if part), str(ROOT)]
    if os.environ.get("PYTHONPATH"):
        path.append(os.environ["PYTHONPATH"])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "lines.json")
        log = Path(folder, "log")
        command = [sys.executable, *WORKER, *job.parts, "--mode", job.mode, "--out", str(out)]
        began = time.monotonic()
        with log.open("wb") as printed:
            process = subprocess.Popen(
                [*command, *extra],
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout=limit)
                outcome.ended = {0: "ok", NO_GPU: "no GPU"}.get(code, f"exit {code}")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                outcome.ended = f"stopped after {limit:.0f} s"
        outcome.seconds = round(time.monotonic() - began, 1)
        outcome.output = log.read_text(errors="replace")[-6000:]
        if out.exists():
            for line in out.read_text().splitlines():
                try:
                    outcome.lines.append(json.loads(line))
                except ValueError:  # the last one, cut short
                    break
    return outcome


def run_all(
    jobs: list[Job], budget: float, extra: list[str], after: Callable[[list[Outcome]], object]
) -> list[Outcome]:
    """Run the jobs in order, neighbours that need not be alone together.

    ``after`` is called whenever there is something new, with all there is.
    """
    deadline = time.monotonic() + budget
    outcomes: list[Outcome] = []
    position = 0
    while position < len(jobs):
        group = [jobs[position]]
        while not group[-1].alone and position + len(group) < len(jobs):
            following = jobs[position + len(group)]
            if following.alone:
                break
            group.append(following)
        position += len(group)
        with ThreadPoolExecutor(len(group)) as pool:
            left = deadline - time.monotonic()
            done = list(pool.map(run_job, group, [extra] * len(group), [left] * len(group)))
        for outcome in done:
            print(f"[{outcome.seconds:6.1f} s] {outcome.job.name}: {outcome.ended}", flush=True)
            if outcome.ended != "ok":
                print("    " + "\n    ".join(outcome.output.splitlines()[-12:]), flush=True)
        outcomes += done
        after(outcomes)
        if any(outcome.ended == "no GPU" for outcome in done):
            break
    return outcomes
