"""The GPU as the benchmarks see it: memory, streams, graphs and clocks, through torch."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cuda.bindings.driver as cu
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack, make_ptr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What fills a tensor that a kernel must write, so that an unwritten place shows.
POISON = 0xA5

DTYPES: dict[str, torch.dtype] = {
    "Boolean": torch.bool,
    "Int8": torch.int8,
    "Int16": torch.int16,
    "Int32": torch.int32,
    "Int64": torch.int64,
    "Uint8": torch.uint8,
    "Uint16": torch.uint16,
    "Uint32": torch.uint32,
    "Uint64": torch.uint64,
    "Float16": torch.float16,
    "BFloat16": torch.bfloat16,
    "TFloat32": torch.float32,
    "Float32": torch.float32,
    "Float64": torch.float64,
}


class Buffer:
    """Device memory of ``count`` elements of a DSL type, with the tensors that show it."""

    device = "cuda"

    def __init__(self, count: int, name: str = "Float32") -> None:
        dtype = DTYPES[name]
        self.raw = torch.zeros(count * dtype.itemsize, dtype=torch.uint8, device=self.device)
        self.torch = self.raw.view(dtype)
        self.tensor: Any = from_dlpack(self.torch)

    def fill(self, array: Any) -> Buffer:
        """Copy a numpy array of the same type in."""
        self.torch.copy_(torch.from_numpy(array))
        return self

    def poison(self) -> None:
        self.raw.fill_(POISON)

    def read(self) -> bytes:
        return bytes(self.raw.cpu().numpy().tobytes())

    def ffi_tensor(self) -> Any:
        """The same memory as an argument of a function compiled for TVM-FFI."""
        return from_dlpack(self.torch, enable_tvm_ffi=True)

    def pointer(self, dtype: Any) -> Any:
        """A DSL pointer, made anew at each call as library wrappers do."""
        return make_ptr(dtype, self.torch.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)


class Stream:
    """A stream of the device, and its handle as the DSL takes it."""

    def __init__(self) -> None:
        self.torch = torch.cuda.Stream()
        self.number = int(self.torch.cuda_stream)
        self.handle = cu.CUstream(self.number)

    def anew(self) -> Any:
        """The handle again, as an object of its own."""
        return cu.CUstream(self.number)


class Graph:
    """A CUDA graph: what is launched inside ``capture`` runs again at each ``replay``."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._graph = torch.cuda.CUDAGraph()

    @contextmanager
    def capture(self) -> Iterator[None]:
        with torch.cuda.graph(self._graph, stream=self._stream.torch):
            yield

    def replay(self) -> None:
        with torch.cuda.stream(self._stream.torch):
            self._graph.replay()

    def milliseconds(self) -> float:
        """Time on the device of one replay, between two events on its stream."""
        start = torch.cuda.Event(enable_timing=True)
        stop = torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._stream.torch):
            start.record()
            self._graph.replay()
            stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop))


def available() -> bool:
    """Whether there is a GPU to run on."""
    return bool(torch.cuda.is_available())


def synchronize() -> None:
    torch.cuda.synchronize()


def memory() -> tuple[int, int]:
    """Bytes of device memory that torch holds, and that the whole card has in use."""
    free, total = torch.cuda.mem_get_info()
    # Not memory_allocated(): it makes a reference cycle, 18 kB a call with the collector off.
    stats = torch.cuda.memory_stats_as_nested_dict()
    held = stats["allocated_bytes"]["all"]["current"] if stats else 0
    return held, total - free


def facts() -> dict[str, str]:
    """Card, driver and versions, for the head of the results."""
    import cutlass

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        card = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        name, driver = (part.strip() for part in card.stdout.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        name, driver = torch.cuda.get_device_name(), "unknown"
    return {
        "card": name,
        "driver": driver,
        "release": str(cutlass.__version__),
        "torch": str(torch.__version__),
    }


def bare_call(compiled: Any, args: tuple[Any, ...]) -> tuple[Callable[[Any], Any], Any, Any]:
    """The C function of a compiled function and a packed array that is ready for it.

    The third value must be kept as long as the array is in use.
    """
    executor = compiled.to(None)
    pointers, adapted = compiled.generate_execution_args(*args)
    packed = executor._get_invoke_packed_args(pointers)
    return executor.capi_func, packed, (executor, pointers, adapted, args)
