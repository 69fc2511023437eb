"""The H200 row of the speed table: 2 tensors, 3 scalars and a stream, in every way to launch.

Each mode runs in a fresh process: stock, interned scalars with launches as the
release makes them, and the fast launch path. In each, the numbers that the
kernel wrote are compared with a float64 reference, then all variants, TVM-FFI
and the bare C call among them, are timed in turns. Run it from the checkout,
on a machine with an NVIDIA GPU, torch and nvidia-cutlass-dsl::

    python benchmarks/gpu_launch.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gpu.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["--parts", "launch", "--name", "gpu-launch", "--no-plots", *sys.argv[1:]]))
