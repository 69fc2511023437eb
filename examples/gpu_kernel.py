"""A kernel launch on a GPU: two tensors, three scalars and a stream, in every way to pass them.

Needs an NVIDIA GPU and torch::

    python examples/gpu_kernel.py
    SCALARINTERN=0 python examples/gpu_kernel.py

The result is checked. The printed times are of the host side: how long a call keeps
Python, not how long the kernel runs.

No ``from __future__ import annotations`` here: the DSL reads the annotations.
"""

import argparse
import sys
import time

import cuda.bindings.driver as cuda
import cutlass
from cutlass import Float32, Int32, cute
from cutlass.cute.runtime import from_dlpack

import scalarintern

THREADS = 256
COUNT = 4096


@cute.kernel
def _scaled_sum(x: cute.Tensor, y: cute.Tensor, alpha: Float32, beta: Float32, count: Int32):
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    place = block * THREADS + thread
    if place < count:
        y[place] = alpha * x[place] + beta


@cute.jit
def scaled_sum(
    x: cute.Tensor,
    y: cute.Tensor,
    alpha: Float32,
    beta: Float32,
    count: Int32,
    stream: cuda.CUstream,
):
    """Write ``alpha * x + beta`` to ``y``, for the first ``count`` elements."""
    _scaled_sum(x, y, alpha, beta, count).launch(
        grid=((count + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream
    )


def microseconds_a_call(call, synchronize, repeats):
    """Return what one call takes on the host, the median of seven batches."""
    batches = []
    for _ in range(7):
        synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        batches.append((time.perf_counter() - began) / repeats)
        synchronize()
    return 1e6 * sorted(batches)[3]


def main():
    """Compile, check the result for several scalars, time three ways to pass them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=500, help="launches in a batch")
    repeats = parser.parse_args().repeats
    try:
        import torch
    except ModuleNotFoundError:
        sys.exit("this example needs torch: pip install torch")
    if not torch.cuda.is_available():
        sys.exit("this example needs an NVIDIA GPU; examples/training_loop.py needs none")

    x = torch.arange(COUNT, dtype=torch.float32, device="cuda")
    y = torch.zeros_like(x)
    # Tensors and the stream's handle are wrapped once, outside the loop.
    x_, y_ = from_dlpack(x), from_dlpack(y)
    torch_stream = torch.cuda.Stream()
    stream = cuda.CUstream(torch_stream.cuda_stream)
    torch_stream.wait_stream(torch.cuda.current_stream())
    launch = cute.compile(scaled_sum, x_, y_, 1.0, 0.0, COUNT, stream)

    for alpha, beta in ((0.5, 1.0), (-0.0, 2.0), (1e-3, -7.25), (0.5, 1.0)):
        launch(x_, y_, alpha, beta, COUNT, stream)
        torch.cuda.synchronize()
        torch.testing.assert_close(y, alpha * x + beta)
    print("results are right")

    alpha, beta, count = Float32(0.5), Float32(1.0), Int32(COUNT)
    ways = {
        "raw numbers": lambda: launch(x_, y_, 0.5, 1.0, COUNT, stream),
        "objects, made once": lambda: launch(x_, y_, alpha, beta, count, stream),
        "objects, made at each call": lambda: launch(
            x_, y_, Float32(0.5), Float32(1.0), Int32(COUNT), stream
        ),
    }
    print(f"nvidia-cutlass-dsl {cutlass.__version__}, host side, microseconds a launch:")
    for name, call in ways.items():
        each = microseconds_a_call(call, torch.cuda.synchronize, repeats)
        print(f"  {name:28} {each:6.1f}")
    print("interned" if scalarintern.is_installed() else "not interned")


if __name__ == "__main__":
    main()
