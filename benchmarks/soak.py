"""Runs a training-like load for long and says whether anything was lost or grew.

    SOAK_SECONDS=600 python -m benchmarks.soak --json soak.json --plot soak.png

Threads take steps as a training loop does: constants, a step counter, a learning
rate, the sizes of the experts that a router chose, all as transient scalars, some of
them interned and held. Beside them others clear, resize, collect, audit and fork, and
one writes into a canonical scalar of its own. The cyclic collector is off, as it is
around CUDA graphs, but for the collections that are asked for.

Exit code 0 if nothing was found: no identity split, no changed bytes, no audit
finding, no failed child, no error, and RSS rose by less than 0.1 MB a minute after
warm-up. Where the run is too short to tell such a slope, it is only printed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import random
import signal
import struct
import sys
import threading
import time
import traceback
import warnings
from array import array
from collections import Counter

import psutil

import scalarintern
from scalarintern.cli.terminal import json_path, picture_path

#: Allowed rise of RSS after warm-up, in MB a minute.
MAX_SLOPE = 0.1
#: A slope is judged from so many seconds after warm-up on: noise hides it before.
JUDGED_SECONDS = 240
#: The allocators of ten threads reach their high water slowly: a third of the run, and
#: five minutes at most, are warm-up.
WARM_UP_SHARE = 1 / 3
WARM_UP_MOST = 300.0
STEPPERS = 6
SAMPLE_SECONDS = 0.5
FORK_SECONDS = 3.0


class Load:
    """What all threads share: the DSL's classes, the board of held things, the counts."""

    def __init__(self, typing):
        self.typing = typing
        self.done = threading.Event()
        self.held = {}
        self.faults = Counter()
        self.errors = []
        self.counts = [Counter() for _ in range(STEPPERS + 4)]

    def compare(self, key, found):
        """Compare with what another thread found and holds; both are held now."""
        if self.held.setdefault(key, found) is not found:
            self.faults["identity splits"] += 1

    def check(self, pointer, expected):
        """Compare the bytes at a pointer with those that its value has."""
        if ctypes.string_at(pointer.value, len(expected)) != expected:
            self.faults["changed bytes"] += 1

    def guarded(self, target, *args):
        """Run a thread's work; an error ends the whole run."""
        try:
            target(self, *args)
        except BaseException:
            self.errors.append(traceback.format_exc())
            self.done.set()


def marshal(scalar):
    """Return the one launch pointer of a scalar, as an executor takes it."""
    [pointer] = scalar.__c_pointers__()
    return pointer


def stepper(load, number):
    """Take training steps; every so often compare identity and bytes."""
    typing = load.typing
    int32, int64, float32 = typing.Int32, typing.Int64, typing.Float32
    boolean, bfloat16 = typing.Boolean, typing.BFloat16
    draw = random.Random(number)
    counts = load.counts[number]
    kept = []
    step = number * 10**9
    shapes = [(4096, 11008, 32), (8192, 28672, 64)][number % 2]
    while not load.done.is_set():
        step += 1
        rate = 3e-4 * (1.0 - (step % 10**9) * 1e-9)
        # A launch's arguments: made, marshalled, and gone, but for the pointers.
        packed = [marshal(int32(size)) for size in shapes]
        packed.append(marshal(int64(step)))
        packed.append(marshal(float32(rate)))
        packed.append(marshal(float32(0.125)))
        packed.append(marshal(boolean(step % 100 == 0)))
        # The tokens of the experts that a router chose.
        packed += [marshal(int32(draw.randrange(2048))) for _ in range(4)]
        held = float32.intern(0.9)
        if int32.intern(shapes[0]) is not int32.intern(shapes[0]):
            load.faults["identity splits"] += 1
        counts["steps"] += 1
        counts["interns"] += len(packed) + 3
        if step % 16 == 0:
            load.check(packed[0], struct.pack("<i", shapes[0]))
            load.check(packed[3], struct.pack("<q", step))
            load.check(packed[4], struct.pack("<f", rate))
            kept.append((packed[3], struct.pack("<q", step)))
            if len(kept) > 200:
                for pointer, expected in kept:
                    load.check(pointer, expected)
                del kept[: draw.randrange(100, 200)]
            load.compare("0.9", held)
            size = draw.randrange(64)
            scalar = int32.intern(size)
            load.compare(size, scalar)
            load.compare((size, "pointer"), marshal(scalar))
            bfloat16.intern(size / 8).__c_pointers__()
            if step % 160 == 0:
                for key in draw.sample(list(load.held), min(6, len(load.held))):
                    load.held.pop(key, None)


def janitor(load, number):
    """Clear, resize, collect, look and audit, a few times a second."""
    draw = random.Random(number)
    counts = load.counts[number]
    while not load.done.wait(0.02 + draw.random() * 0.1):
        action = draw.choice(("clear", "resize", "collect", "look", "audit", "trace"))
        counts[action] += 1
        if action == "clear":
            scalarintern.clear()
        elif action == "resize":
            scalarintern.configure(retain=draw.choice((64, 512, 4096)))
        elif action == "collect":
            gc.collect(draw.randrange(2))
        elif action == "look":
            stats = scalarintern.stats(per_class=True)
            if max(stats.retained, stats.retained_pointers) > 4096 + 64:
                load.faults["bound exceeded"] += 1
        elif action == "audit":
            load.faults["audit findings"] += len(scalarintern.audit())
        else:
            with load.typing.ir.Context():
                fresh = load.typing.Int32.intern(1)
                if load.typing.Int32.intern(1) is fresh:
                    load.faults["shared inside a trace"] += 1


def vandal(load, number):
    """Write into a canonical scalar of its own, and see that it hurts nobody."""
    int32 = load.typing.Int32
    counts = load.counts[number]
    while not load.done.wait(0.01):
        scalar = int32.intern(-77)
        scalar.value = 5
        healed = int32.intern(-77)
        if healed.value != -77:
            load.faults["not healed"] += 1
        scalar.value = -77
        if int32.intern(-77) is not healed:
            load.faults["identity splits"] += 1
        counts["writes"] += 1


def forker(load, number):
    """Fork in the thick of it; the child works on, and says so by its exit code."""
    typing = load.typing
    counts = load.counts[number]
    while not load.done.wait(FORK_SECONDS):
        held = typing.Int32.intern(4096)
        pointer = marshal(held)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                signal.alarm(60)
                same = typing.Int32.intern(4096) is held
                same = same and marshal(typing.Int32(4096)) is pointer
                for value in range(2000):
                    typing.Int64.intern(value).__c_pointers__()
                scalarintern.clear()
                code = 0 if same and not scalarintern.audit() else 3
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        counts["forks"] += 1
        if code:
            load.faults["failed children"] += 1


def slope(samples):
    """Return MB a minute of the least-squares line through (seconds, MB)."""
    if len(samples) < 3:
        return 0.0
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return 60 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0


def soak(seconds, quiet=False):
    """Run the load for so many seconds; returns the report."""
    from cutlass.base_dsl import typing

    installation = scalarintern.install()
    if not installation.installed:
        raise SystemExit(f"the adapter is not applied: {installation.reason}")
    warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads running
    load = Load(typing)
    process = psutil.Process()
    targets = [(stepper, n) for n in range(STEPPERS)]
    targets += [(janitor, STEPPERS), (janitor, STEPPERS + 1), (vandal, STEPPERS + 2)]
    targets += [(forker, STEPPERS + 3)]
    threads = [threading.Thread(target=load.guarded, args=target) for target in targets]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    gc.collect()
    gc.disable()
    start = time.monotonic()
    for thread in threads:
        thread.start()
    times, sizes = array("d"), array("d")  # which hardly grow themselves
    told = start
    try:
        while not load.done.wait(SAMPLE_SECONDS):
            now = time.monotonic()
            times.append(now - start)
            sizes.append(process.memory_info().rss / 2**20)
            if now - start >= seconds:
                break
            if not quiet and now - told >= 60:
                told = now
                print(f"{now - start:6.0f} s  {sizes[-1]:8.1f} MB  {dict(load.faults)}")
                sys.stdout.flush()
    finally:
        load.done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
        gc.enable()
    samples = list(zip(times, sizes))
    load.faults["audit findings"] += len(scalarintern.audit())
    counts = sum(load.counts, Counter())
    warm_up = min(seconds * WARM_UP_SHARE, WARM_UP_MOST)
    warm = [sample for sample in samples if sample[0] >= warm_up]
    stats = scalarintern.stats()
    elapsed = samples[-1][0] if samples else 0.0
    rise = slope(warm)
    judged = elapsed - warm_up >= JUDGED_SECONDS
    faults = {fault: count for fault, count in load.faults.items() if count}
    held = max(stats.retained, stats.retained_pointers)
    if held > stats.retain:
        faults["retained beyond the bound at the end"] = held
    failed = bool(faults or load.errors or (judged and rise >= MAX_SLOPE))
    return {
        "release": installation.release,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seconds": round(elapsed, 1),
        "warm_up_seconds": warm_up,
        "slope_mb_per_minute": round(rise, 4),
        "slope_judged": judged,
        "rss_mb": {
            "start": round(samples[0][1], 1) if samples else None,
            "after_warm_up": round(warm[0][1], 1) if warm else None,
            "end": round(samples[-1][1], 1) if samples else None,
            "peak": round(max((mb for _, mb in samples), default=0.0), 1),
        },
        "audit_findings": load.faults["audit findings"],
        "identity_splits": load.faults["identity splits"],
        "faults": faults,
        "errors": load.errors,
        "counts": dict(counts),
        "misses": stats.misses,
        "evicted": stats.evicted,
        "live": stats.live,
        "pointers": stats.pointers,
        "verdict": "failed" if failed else "passed",
        "samples": [(round(x, 1), round(y, 2)) for x, y in samples],
    }


def plot(report, path):
    """Draw RSS over time with the line after warm-up; False where matplotlib is missing."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return False
    samples = report["samples"]
    warm = [sample for sample in samples if sample[0] >= report["warm_up_seconds"]]
    figure, axes = plt.subplots(figsize=(8, 4))
    axes.plot([x / 60 for x, _ in samples], [y for _, y in samples], label="RSS")
    if len(warm) > 2:
        rise = report["slope_mb_per_minute"]
        centre_x = sum(x for x, _ in warm) / len(warm) / 60
        centre_y = sum(y for _, y in warm) / len(warm)
        ends = [warm[0][0] / 60, warm[-1][0] / 60]
        line = [centre_y + rise * (x - centre_x) for x in ends]
        axes.plot(ends, line, "--", label=f"{rise:+.3f} MB a minute after warm-up")
    axes.set_xlabel("minutes")
    axes.set_ylabel("RSS, MB")
    axes.set_ylim(bottom=0)
    axes.set_title(
        f"{report['counts'].get('interns', 0) / 1e6:.0f} million interns, "
        f"nvidia-cutlass-dsl {report['release']}, CPython {report['python']}"
    )
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=os.environ.get("SOAK_SECONDS") or "3600",
        help="how long; by default SOAK_SECONDS, or an hour",
    )
    parser.add_argument("--json", type=json_path, default="soak.json", help="report file")
    parser.add_argument("--plot", type=picture_path, default="soak.png", help="plot file")
    parser.add_argument("-q", "--quiet", action="store_true", help="only say the verdict")
    options = parser.parse_args(argv)
    report = soak(options.seconds, options.quiet)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"Wrote {options.json}")
    if plot(report, options.plot):
        print(f"Wrote {options.plot}")
    for error in report["errors"]:
        print(error)
    print(
        f"{report['verdict']}: {report['seconds']:.0f} s, "
        f"{report['counts'].get('interns', 0):,} interns, {report['misses']:,} misses, "
        f"{report['counts'].get('forks', 0)} forks; RSS {report['slope_mb_per_minute']:+.3f} MB "
        f"a minute after warm-up{'' if report['slope_judged'] else ' (too short to judge)'}; "
        f"{report['audit_findings']} audit findings, {report['identity_splits']} identity splits, "
        f"other faults: {report['faults'] or 'none'}"
    )
    return 1 if report["verdict"] == "failed" else 0


if __name__ == "__main__":
    sys.exit(main())
