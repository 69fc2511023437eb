"""A training-shaped loop with the collector off: what grows, and what comes out.

A step is an RMSNorm, eight groups of eight experts with a row count each, a
scaled residual and a fused AdamW: 11 launches, 119 scalars, of which the
learning rate, both bias corrections, the step counter and the 64 counts with
their first rows change from step to step.
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cutlass
import numpy as np
from cutlass import cute

from . import device, kernels

if TYPE_CHECKING:
    from .worker import Sink

ROWS = COLUMNS = 256
COUNT = ROWS * COLUMNS
EXPERTS = 64
GROUP = 8
PER_STEP = 3 + EXPERTS // GROUP
ROUTINGS = 499
WARM_UP_STEPS = 20
REFERENCE_STEPS = 5
SAMPLES = 100

EPS_NORM, EPS_ADAM = 1e-6, 1e-8
BETA1, BETA2, DECAY, ALPHA = 0.9, 0.95, 0.01, 0.5
PEAK_RATE = 1e-3


def learning_rate(step: int, steps: int) -> float:
    """A short linear warm-up, then a cosine: another value at each step."""
    ramp = min(1.0, step / 100)
    return PEAK_RATE * ramp * (0.55 + 0.45 * math.cos(math.pi * step / steps))


def routings() -> list[list[int]]:
    """Rows per expert, as Python numbers, for as many steps as repeat."""
    draw = np.random.default_rng(11)
    shares = draw.dirichlet(np.ones(EXPERTS), ROUTINGS)
    return [[int(n) for n in draw.multinomial(ROWS, share)] for share in shares]


class Model:
    """Parameters, optimizer state and inputs on the device, and the compiled step."""

    def __init__(self, steps: int) -> None:
        draw = np.random.default_rng(3)
        normal = draw.standard_normal
        self.steps = steps
        self.start = {
            "weights": normal(COUNT).astype("f4"),
            "gamma": (1 + 0.1 * normal(COLUMNS)).astype("f4"),
            "gains": (1 + 0.2 * normal(EXPERTS)).astype("f4"),
            "skip": normal(COUNT).astype("f4"),
            "target": normal(COUNT).astype("f4"),
        }
        self.buffers = {
            name: device.Buffer(len(array)).fill(array) for name, array in self.start.items()
        }
        for name in ("out", "gradient", "mean", "square"):
            self.buffers[name] = device.Buffer(COUNT)
        self.buffers["counter"] = device.Buffer(1, "Int32")
        self.routings = routings()
        self.stream = device.Stream()
        self._compile()

    def _compile(self) -> None:
        at = {name: buffer.tensor for name, buffer in self.buffers.items()}
        f32, i32, stream = cutlass.Float32(1.0), cutlass.Int32(1), self.stream.handle
        self.tensors = {
            "rmsnorm": (at["weights"], at["gamma"], at["out"]),
            "experts": (at["out"], at["gains"]),
            "residual": (at["out"], at["skip"], at["target"], at["gradient"]),
            "adamw": tuple(at[n] for n in ("weights", "gradient", "mean", "square", "counter")),
        }
        scalars = {
            "rmsnorm": (f32, i32, i32),
            "experts": (*[i32] * (2 + GROUP), f32, i32, i32),
            "residual": (f32, f32, i32),
            "adamw": (*[f32] * 7, i32, i32),
        }
        functions = {
            "rmsnorm": kernels.rmsnorm,
            "experts": kernels.scale_experts,
            "residual": kernels.residual,
            "adamw": kernels.adamw,
        }
        self.compiled: dict[str, Any] = {
            name: cute.compile(function, *self.tensors[name], *scalars[name], stream)
            for name, function in functions.items()
        }

    def reset(self) -> None:
        """Back to the parameters and the empty optimizer state of the start."""
        for name, buffer in self.buffers.items():
            if name in self.start:
                buffer.fill(self.start[name])
            else:
                buffer.raw.zero_()
        device.synchronize()

    def step(self, step: int) -> None:
        """Launch one step: most scalars raw, the learning rate as an object made for it."""
        run, at, stream = self.compiled, self.tensors, self.stream.handle
        run["rmsnorm"](*at["rmsnorm"], EPS_NORM, ROWS, COLUMNS, stream)
        counts = self.routings[step % ROUTINGS]
        row = 0
        for first in range(0, EXPERTS, GROUP):
            group = counts[first : first + GROUP]
            run["experts"](*at["experts"], first, row, *group, 1.25, ROWS, COLUMNS, stream)
            row += sum(group)
        run["residual"](*at["residual"], ALPHA, 1.0 / ROWS, COUNT, stream)
        run["adamw"](
            *at["adamw"],
            cutlass.Float32(learning_rate(step, self.steps)),
            BETA1,
            BETA2,
            EPS_ADAM,
            DECAY,
            1.0 - BETA1**step,
            1.0 - BETA2**step,
            step,
            COUNT,
            stream,
        )

    def digest(self) -> str:
        """Of parameters and optimizer state, to the bit."""
        device.synchronize()
        digest = hashlib.sha256()
        for name in ("weights", "mean", "square", "counter"):
            digest.update(self.buffers[name].read())
        return digest.hexdigest()[:32]

    def reference(self, steps: int) -> Any:
        """The parameters after some steps, in float64 on the CPU."""
        state = {name: array.astype("f8") for name, array in self.start.items()}
        weights = state["weights"]
        mean, square = np.zeros(COUNT), np.zeros(COUNT)
        for step in range(1, steps + 1):
            table = weights.reshape(ROWS, COLUMNS)
            scale = 1 / np.sqrt((table**2).mean(axis=1, keepdims=True) + EPS_NORM)
            gains = np.repeat(state["gains"], self.routings[step % ROUTINGS])[:, None] * 1.25
            out = (table * scale * state["gamma"] * gains).reshape(-1)
            gradient = (state["skip"] + ALPHA * out - state["target"]) / ROWS
            mean = BETA1 * mean + (1 - BETA1) * gradient
            square = BETA2 * square + (1 - BETA2) * gradient**2
            rate = learning_rate(step, self.steps)
            weights = weights - rate * DECAY * weights
            corrected = np.sqrt(square / (1 - BETA2**step)) + EPS_ADAM
            weights = weights - rate * (mean / (1 - BETA1**step)) / corrected
        return weights


def resident() -> int:
    """Resident memory of this process, bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(sink: Sink, mode: str, launches: int) -> None:
    """Check the step against float64, then run the loop and sample memory."""
    steps = -(-launches // PER_STEP)
    model = Model(steps)
    model.reset()
    for step in range(1, REFERENCE_STEPS + 1):
        model.step(step)
    device.synchronize()
    got = np.frombuffer(model.buffers["weights"].read(), dtype="f4").astype("f8")
    want = model.reference(REFERENCE_STEPS)
    moved = want - model.start["weights"]
    sink.put(
        "train_reference",
        steps=REFERENCE_STEPS,
        # of the way that the parameters went, not of the parameters: far stricter
        relative_error=float(np.linalg.norm(got - want) / np.linalg.norm(moved)),
    )
    model.reset()
    for step in range(1, WARM_UP_STEPS + 1):
        model.step(step)
    model.reset()

    gc.collect()
    gc.disable()
    every = max(1, steps // SAMPLES)
    samples = [(0, resident(), *device.memory())]
    digests = []
    began = time.perf_counter()
    for step in range(1, steps + 1):
        model.step(step)
        if step % every == 0 or step == steps:
            device.synchronize()
            samples.append((step * PER_STEP, resident(), *device.memory()))
            if len(samples) % 20 == 0:
                digests.append((step, model.digest()))
    seconds = time.perf_counter() - began
    digests.append((steps, model.digest()))
    weights = np.frombuffer(model.buffers["weights"].read(), dtype="f4")
    gc.enable()
    result: dict[str, Any] = {
        "launches": steps * PER_STEP,
        "seconds": seconds,
        "samples": samples,
        "digests": digests,
        "finite": bool(np.isfinite(weights).all()),
        "last_step": int(np.frombuffer(model.buffers["counter"].read(), dtype="i4")[0]),
    }
    if mode != "stock":
        import scalarintern

        stats = scalarintern.stats()
        result["stats"] = {
            name: getattr(stats, name)
            for name in ("misses", "live", "retained", "evicted", "bytes")
            if hasattr(stats, name)
        }
        result["audit"] = len(scalarintern.audit())
    sink.put("train", **result)
