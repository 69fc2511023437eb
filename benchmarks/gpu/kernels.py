"""The kernels of the GPU benchmarks, written in CuTe DSL for this project.

No ``from __future__ import annotations`` here: the DSL reads the annotations.
"""

from typing import Any

import cuda.bindings.driver as cu
import cutlass
from cutlass import (
    BFloat16,
    Boolean,
    Float16,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    TFloat32,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    cute,
)

THREADS = 256
WARP = 32


def _thread() -> Any:
    return cute.arch.block_idx()[0] * cute.arch.block_dim()[0] + cute.arch.thread_idx()[0]


# What the kernel received, written to memory: every type that marshals.


@cute.kernel
def _echo_integers(
    o_boolean: cute.Tensor,
    o_int8: cute.Tensor,
    o_int16: cute.Tensor,
    o_int32: cute.Tensor,
    o_int64: cute.Tensor,
    o_uint8: cute.Tensor,
    o_uint16: cute.Tensor,
    o_uint32: cute.Tensor,
    o_uint64: cute.Tensor,
    boolean: Boolean,
    int8: Int8,
    int16: Int16,
    int32: Int32,
    int64: Int64,
    uint8: Uint8,
    uint16: Uint16,
    uint32: Uint32,
    uint64: Uint64,
    slot: Int32,
):
    o_boolean[slot] = boolean
    o_int8[slot] = int8
    o_int16[slot] = int16
    o_int32[slot] = int32
    o_int64[slot] = int64
    o_uint8[slot] = uint8
    o_uint16[slot] = uint16
    o_uint32[slot] = uint32
    o_uint64[slot] = uint64


@cute.jit
def echo_integers(
    o_boolean: cute.Tensor,
    o_int8: cute.Tensor,
    o_int16: cute.Tensor,
    o_int32: cute.Tensor,
    o_int64: cute.Tensor,
    o_uint8: cute.Tensor,
    o_uint16: cute.Tensor,
    o_uint32: cute.Tensor,
    o_uint64: cute.Tensor,
    boolean: Boolean,
    int8: Int8,
    int16: Int16,
    int32: Int32,
    int64: Int64,
    uint8: Uint8,
    uint16: Uint16,
    uint32: Uint32,
    uint64: Uint64,
    slot: Int32,
    stream: cu.CUstream,
):
    """Write each integer that came in to place ``slot`` of its tensor."""
    _echo_integers(
        o_boolean,
        o_int8,
        o_int16,
        o_int32,
        o_int64,
        o_uint8,
        o_uint16,
        o_uint32,
        o_uint64,
        boolean,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
        slot,
    ).launch(grid=(1, 1, 1), block=(1, 1, 1), stream=stream)


@cute.kernel
def _echo_floats(
    o_float16: cute.Tensor,
    o_bfloat16: cute.Tensor,
    o_tfloat32: cute.Tensor,
    o_float32: cute.Tensor,
    o_float64: cute.Tensor,
    float16: Float16,
    bfloat16: BFloat16,
    tfloat32: TFloat32,
    float32: Float32,
    float64: Float64,
    slot: Int32,
):
    o_float16[slot] = float16
    o_bfloat16[slot] = bfloat16
    o_tfloat32[slot] = tfloat32.to(Float32)  # costs no instruction: all 32 bits are kept
    o_float32[slot] = float32
    o_float64[slot] = float64


@cute.jit
def echo_floats(
    o_float16: cute.Tensor,
    o_bfloat16: cute.Tensor,
    o_tfloat32: cute.Tensor,
    o_float32: cute.Tensor,
    o_float64: cute.Tensor,
    float16: Float16,
    bfloat16: BFloat16,
    tfloat32: TFloat32,
    float32: Float32,
    float64: Float64,
    slot: Int32,
    stream: cu.CUstream,
):
    """Write each float that came in to place ``slot`` of its tensor."""
    _echo_floats(
        o_float16,
        o_bfloat16,
        o_tfloat32,
        o_float32,
        o_float64,
        float16,
        bfloat16,
        tfloat32,
        float32,
        float64,
        slot,
    ).launch(grid=(1, 1, 1), block=(1, 1, 1), stream=stream)


# A step of training in four kernels. Matrices are row-major and passed flat.


@cute.kernel
def _rmsnorm(
    weights: cute.Tensor, gamma: cute.Tensor, out: cute.Tensor, eps: Float32, columns: Int32
):
    row = cute.arch.block_idx()[0]
    lane = cute.arch.thread_idx()[0]
    base = row * columns
    total = Float32(0.0)
    for step in cutlass.range(columns // WARP):
        w = weights[base + step * WARP + lane]
        total += w * w
    total = cute.arch.warp_reduction_sum(total)
    scale = cute.math.rsqrt(total / Float32(columns) + eps)
    for step in cutlass.range(columns // WARP):
        column = step * WARP + lane
        out[base + column] = weights[base + column] * scale * gamma[column]


@cute.jit
def rmsnorm(
    weights: cute.Tensor,
    gamma: cute.Tensor,
    out: cute.Tensor,
    eps: Float32,
    rows: Int32,
    columns: Int32,
    stream: cu.CUstream,
):
    """Normalise each row by its root mean square; ``columns`` a multiple of a warp."""
    _rmsnorm(weights, gamma, out, eps, columns).launch(
        grid=(rows, 1, 1), block=(WARP, 1, 1), stream=stream
    )


@cute.kernel
def _scale_experts(
    out: cute.Tensor,
    gains: cute.Tensor,
    first_expert: Int32,
    first_row: Int32,
    n0: Int32,
    n1: Int32,
    n2: Int32,
    n3: Int32,
    n4: Int32,
    n5: Int32,
    n6: Int32,
    n7: Int32,
    scale: Float32,
    columns: Int32,
):
    row = cute.arch.block_idx()[0]
    column = cute.arch.thread_idx()[0]
    expert = first_expert
    edge = n0
    if row >= edge:
        expert += 1
    edge += n1
    if row >= edge:
        expert += 1
    edge += n2
    if row >= edge:
        expert += 1
    edge += n3
    if row >= edge:
        expert += 1
    edge += n4
    if row >= edge:
        expert += 1
    edge += n5
    if row >= edge:
        expert += 1
    edge += n6
    if row >= edge:
        expert += 1
    edge += n7
    if row < edge and column < columns:
        place = (first_row + row) * columns + column
        out[place] = out[place] * (gains[expert] * scale)


@cute.jit
def scale_experts(
    out: cute.Tensor,
    gains: cute.Tensor,
    first_expert: Int32,
    first_row: Int32,
    n0: Int32,
    n1: Int32,
    n2: Int32,
    n3: Int32,
    n4: Int32,
    n5: Int32,
    n6: Int32,
    n7: Int32,
    scale: Float32,
    rows: Int32,
    columns: Int32,
    stream: cu.CUstream,
):
    """Scale the rows of eight experts, ``n0`` to ``n7`` rows each, from ``first_row`` on.

    ``rows`` is the most that the eight can hold together; a block takes one row,
    of at most ``THREADS`` columns.
    """
    _scale_experts(
        out,
        gains,
        first_expert,
        first_row,
        n0,
        n1,
        n2,
        n3,
        n4,
        n5,
        n6,
        n7,
        scale,
        columns,
    ).launch(grid=(rows, 1, 1), block=(THREADS, 1, 1), stream=stream)


@cute.kernel
def _residual(
    out: cute.Tensor,
    skip: cute.Tensor,
    target: cute.Tensor,
    gradient: cute.Tensor,
    alpha: Float32,
    inverse_count: Float32,
    count: Int32,
):
    place = _thread()
    if place < count:
        error = skip[place] + alpha * out[place] - target[place]
        gradient[place] = error * inverse_count


@cute.jit
def residual(
    out: cute.Tensor,
    skip: cute.Tensor,
    target: cute.Tensor,
    gradient: cute.Tensor,
    alpha: Float32,
    inverse_count: Float32,
    count: Int32,
    stream: cu.CUstream,
):
    """Scaled residual ``skip + alpha * out``, and its distance from the target."""
    _residual(out, skip, target, gradient, alpha, inverse_count, count).launch(
        grid=((count + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def _adamw(
    weights: cute.Tensor,
    gradient: cute.Tensor,
    mean: cute.Tensor,
    square: cute.Tensor,
    steps: cute.Tensor,
    rate: Float32,
    beta1: Float32,
    beta2: Float32,
    eps: Float32,
    decay: Float32,
    correction1: Float32,
    correction2: Float32,
    step: Int32,
    count: Int32,
):
    place = _thread()
    if place < count:
        g = gradient[place]
        w = weights[place]
        m = beta1 * mean[place] + (Float32(1.0) - beta1) * g
        v = beta2 * square[place] + (Float32(1.0) - beta2) * g * g
        mean[place] = m
        square[place] = v
        w = w - rate * decay * w
        move = (m / correction1) / (cute.math.sqrt(v / correction2) + eps)
        weights[place] = w - rate * move
    if place == 0:
        steps[0] = step


@cute.jit
def adamw(
    weights: cute.Tensor,
    gradient: cute.Tensor,
    mean: cute.Tensor,
    square: cute.Tensor,
    steps: cute.Tensor,
    rate: Float32,
    beta1: Float32,
    beta2: Float32,
    eps: Float32,
    decay: Float32,
    correction1: Float32,
    correction2: Float32,
    step: Int32,
    count: Int32,
    stream: cu.CUstream,
):
    """One fused AdamW step; writes the step counter that it received to ``steps[0]``."""
    _adamw(
        weights,
        gradient,
        mean,
        square,
        steps,
        rate,
        beta1,
        beta2,
        eps,
        decay,
        correction1,
        correction2,
        step,
        count,
    ).launch(grid=((count + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream)


# What a launch costs.


@cute.kernel
def _axpb(x: cute.Tensor, y: cute.Tensor, alpha: Float32, beta: Float32, count: Int32):
    place = _thread()
    if place < count:
        y[place] = alpha * x[place] + beta


@cute.jit
def axpb(
    x: cute.Tensor,
    y: cute.Tensor,
    alpha: Float32,
    beta: Float32,
    count: Int32,
    stream: cu.CUstream,
):
    """``y = alpha * x + beta`` on the first ``count`` elements."""
    _axpb(x, y, alpha, beta, count).launch(
        grid=((count + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def _blend(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    out: cute.Tensor,
    alpha: Float32,
    beta: Float32,
    count: Int32,
):
    place = _thread()
    if place < count:
        out[place] = alpha * a[place] + beta * b[place] + c[place]


@cute.jit
def blend(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    out: cute.Pointer,
    alpha: Float32,
    beta: Float32,
    count: Int32,
    stream: cu.CUstream,
):
    """``out = alpha * a + beta * b + c``, by pointers, as library wrappers launch."""
    layout = cute.make_layout(count)
    _blend(
        cute.make_tensor(a, layout),
        cute.make_tensor(b, layout),
        cute.make_tensor(c, layout),
        cute.make_tensor(out, layout),
        alpha,
        beta,
        count,
    ).launch(grid=((count + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream)


@cute.kernel
def _spin(out: cute.Tensor, turns: Int32, factor: Float32, offset: Float32):
    value = Float32(1.0)
    for _turn in cutlass.range(turns):
        value = value * factor + offset
    out[cute.arch.thread_idx()[0]] = value


@cute.jit
def spin(out: cute.Tensor, turns: Int32, factor: Float32, offset: Float32, stream: cu.CUstream):
    """Keep one block of the GPU busy for ``turns`` dependent multiply-adds."""
    _spin(out, turns, factor, offset).launch(grid=(1, 1, 1), block=(128, 1, 1), stream=stream)


@cute.kernel
def _sum0(out: cute.Tensor):
    out[cute.arch.thread_idx()[0]] = Float32(0.0)


@cute.jit
def sum0(out: cute.Tensor, stream: cu.CUstream):
    """No scalar at all."""
    _sum0(out).launch(grid=(1, 1, 1), block=(WARP, 1, 1), stream=stream)


@cute.kernel
def _sum1(out: cute.Tensor, s0: Int32):
    out[cute.arch.thread_idx()[0]] = Float32(s0)


@cute.jit
def sum1(out: cute.Tensor, s0: Int32, stream: cu.CUstream):
    """One scalar."""
    _sum1(out, s0).launch(grid=(1, 1, 1), block=(WARP, 1, 1), stream=stream)


@cute.kernel
def _sum3(out: cute.Tensor, s0: Int32, s1: Float32, s2: Int32):
    out[cute.arch.thread_idx()[0]] = s0 + s1 + s2


@cute.jit
def sum3(out: cute.Tensor, s0: Int32, s1: Float32, s2: Int32, stream: cu.CUstream):
    """Three scalars."""
    _sum3(out, s0, s1, s2).launch(grid=(1, 1, 1), block=(WARP, 1, 1), stream=stream)


@cute.kernel
def _sum8(
    out: cute.Tensor,
    s0: Int32,
    s1: Float32,
    s2: Int32,
    s3: Float32,
    s4: Int32,
    s5: Float32,
    s6: Int32,
    s7: Float32,
):
    out[cute.arch.thread_idx()[0]] = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7


@cute.jit
def sum8(
    out: cute.Tensor,
    s0: Int32,
    s1: Float32,
    s2: Int32,
    s3: Float32,
    s4: Int32,
    s5: Float32,
    s6: Int32,
    s7: Float32,
    stream: cu.CUstream,
):
    """Eight scalars."""
    _sum8(out, s0, s1, s2, s3, s4, s5, s6, s7).launch(
        grid=(1, 1, 1), block=(WARP, 1, 1), stream=stream
    )


@cute.kernel
def _sum16(
    out: cute.Tensor,
    s0: Int32,
    s1: Float32,
    s2: Int32,
    s3: Float32,
    s4: Int32,
    s5: Float32,
    s6: Int32,
    s7: Float32,
    s8: Int32,
    s9: Float32,
    s10: Int32,
    s11: Float32,
    s12: Int32,
    s13: Float32,
    s14: Int32,
    s15: Float32,
):
    low = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7
    out[cute.arch.thread_idx()[0]] = low + s8 + s9 + s10 + s11 + s12 + s13 + s14 + s15


@cute.jit
def sum16(
    out: cute.Tensor,
    s0: Int32,
    s1: Float32,
    s2: Int32,
    s3: Float32,
    s4: Int32,
    s5: Float32,
    s6: Int32,
    s7: Float32,
    s8: Int32,
    s9: Float32,
    s10: Int32,
    s11: Float32,
    s12: Int32,
    s13: Float32,
    s14: Int32,
    s15: Float32,
    stream: cu.CUstream,
):
    """Sixteen scalars."""
    _sum16(out, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15).launch(
        grid=(1, 1, 1), block=(WARP, 1, 1), stream=stream
    )


SUMS = {0: sum0, 1: sum1, 3: sum3, 8: sum8, 16: sum16}
