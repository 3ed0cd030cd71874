"""The Triton kernels of SReLU's fused backward pass.

One kernel for each access pattern (`triton_memory`): a program reduces one channel (runs), vectors
of one channel in many rows (rows), or columns.

A kernel writes the input gradient and, in the same pass, reduces four values of every channel:
g and g (x - t) over the right and over the left tail; a bias adds the sum of the input gradient, a
batch normalisation that and another one (INPUT_SUMS). The gradient may come as two tensors, whose
sum is never stored; a batch normalisation before SReLU (`BatchNormInput`) is fused for columns.

The reduction has two stages and no atomics, so the same input gives the same bits: each program
accumulates in registers and writes partial sums, which a second, small kernel adds in a fixed
order. With a single split, one program reduces all of a channel and writes its gradients itself.
Programs go through a tensor from its end: what the kernel before wrote last may still be in L2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_forward_kernels import biased, load_params
from .triton_memory import (
    block_columns,
    column_tile,
    program,
    read,
    read_rows,
    read_tiles,
    row_tile,
    run_tile,
    write,
)

# Gradients of parameters: rows of one tensor may begin anywhere.
OUT = ["t_r_out", "a_r_out", "t_l_out", "a_l_out", "bias_out"]
# `BatchNormInput`. With a scale, x_ptr is z and the first of these the residual; else it is z.
NORM = ["z_or_residual_ptr", "mean_ptr", "scale_ptr", "shift_ptr"]


@triton.jit
def _slope(x, t_r, a_r, t_l, a_l):
    right, left = x >= t_r, x <= t_l
    return tl.where(left, tl.where(right, a_l + (a_r - 1), a_l), tl.where(right, a_r, 1.0))


@triton.jit
def _tails(g, x, t_r, t_l):
    """The terms of an element: g and g (x - t) in the right tail, and in the left one."""
    right, left = tl.where(x >= t_r, g, 0.0), tl.where(x <= t_l, g, 0.0)
    # max and min change nothing in their tail; outside they keep NaN and inf from 0 * inf
    return right, right * tl.maximum(x - t_r, 0.0), left, left * tl.minimum(x - t_l, 0.0)


@triton.jit
def _write_sums(sums_ptr, at, plane, mask, right0, right1, left0, left1):
    tl.store(sums_ptr + at, right0, mask=mask)
    tl.store(sums_ptr + plane + at, right1, mask=mask)
    tl.store(sums_ptr + 2 * plane + at, left0, mask=mask)
    tl.store(sums_ptr + 3 * plane + at, left1, mask=mask)


@triton.jit(do_not_specialize_on_alignment=OUT)
def backward_runs(
    g_ptr, x_ptr, gx_ptr, sums_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, second_grad_ptr,
    t_r_out, a_r_out, t_l_out, a_l_out, bias_out,
    outer, channels, inner, segments, steps, splits,
    INPUT: tl.constexpr, PARAMS: tl.constexpr, INPUT_SUMS: tl.constexpr, COMPUTE: tl.constexpr,
    SINGLE_SPLIT: tl.constexpr, REPEAT: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    c, split = program()
    c = channels - 1 - c
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, True, COMPUTE
    )
    # A thread keeps one accumulator of each kind: what it loads at once is added up first.
    zeros = tl.zeros((ROWS * (BLOCK // VECTOR),), dtype=COMPUTE)
    right0, right1, left0, left1, input0 = zeros, zeros, zeros, zeros, zeros
    for step in range(split, steps, splits):
        start, offsets, mask = run_tile(
            steps - 1 - step, c, outer, channels, inner, segments, REPEAT, ROWS, BLOCK, VECTOR
        )
        g = read(g_ptr + start + offsets, mask, EVEN).to(COMPUTE)
        if second_grad_ptr is not None:
            g += read(second_grad_ptr + start + offsets, mask, EVEN).to(COMPUTE)
        stored = read(x_ptr + start + offsets, mask, EVEN)
        x = biased(stored, bias, bias_ptr, COMPUTE)
        gx = g * _slope(x, t_r, a_r, t_l, a_l)
        if INPUT:
            write(gx_ptr + start + offsets, gx.to(stored.dtype), mask, EVEN)
        if PARAMS:
            r0, r1, l0, l1 = _tails(g, x, t_r, t_l)
            right0 += tl.sum(tl.sum(r0, 2), 0)
            right1 += tl.sum(tl.sum(r1, 2), 0)
            left0 += tl.sum(tl.sum(l0, 2), 0)
            left1 += tl.sum(tl.sum(l1, 2), 0)
        if INPUT_SUMS:
            input0 += tl.sum(tl.sum(gx, 2), 0)
    if SINGLE_SPLIT:  # this program has reduced all of the channel: these are the gradients
        if PARAMS:
            tl.store(t_r_out + c, tl.sum(right0) * (1 - a_r))
            tl.store(a_r_out + c, tl.sum(right1))
            tl.store(t_l_out + c, tl.sum(left0) * (1 - a_l))
            tl.store(a_l_out + c, tl.sum(left1))
        if INPUT_SUMS:
            tl.store(bias_out + c, tl.sum(input0))
    else:
        plane = tl.zeros((), tl.int64) + splits * channels  # sums: (planes, splits, channels)
        at = split * channels + c
        if PARAMS:
            _write_sums(
                sums_ptr, at, plane, None,
                tl.sum(right0), tl.sum(right1), tl.sum(left0), tl.sum(left1),
            )  # fmt: skip
        if INPUT_SUMS:  # the last plane
            tl.store(sums_ptr + PARAMS * 4 * plane + at, tl.sum(input0))


@triton.jit
def backward_rows(
    g_ptr, x_ptr, gx_ptr, sums_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, second_grad_ptr,
    outer, vectors, per_run, steps, splits,
    INPUT: tl.constexpr, PARAMS: tl.constexpr, INPUT_SUMS: tl.constexpr, COMPUTE: tl.constexpr,
    ROWS: tl.constexpr, VECTORS: tl.constexpr, VECTOR: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    block, split = program()
    vector = block * VECTORS + tl.arange(0, VECTORS)
    in_row = vector < vectors
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, vector // per_run, in_row, COMPUTE
    )
    t_r, a_r, t_l, a_l, bias = t_r[:, None], a_r[:, None], t_l[:, None], a_l[:, None], bias[:, None]
    # A thread keeps one accumulator of each kind for a vector, which is of one channel.
    zeros = tl.zeros((VECTORS,), dtype=COMPUTE)
    right0, right1, left0, left1, input0 = zeros, zeros, zeros, zeros, zeros
    for passed in range(split, steps, splits):
        step = steps - 1 - passed
        gs = read_rows(g_ptr, step, vector, in_row, outer, vectors, ROWS, VECTOR, EVEN)
        xs = read_rows(x_ptr, step, vector, in_row, outer, vectors, ROWS, VECTOR, EVEN)
        if second_grad_ptr is not None:
            seconds = read_rows(
                second_grad_ptr, step, vector, in_row, outer, vectors, ROWS, VECTOR, EVEN
            )
        for i in tl.static_range(ROWS):
            start, offsets, mask = row_tile(step, i, vector, in_row, outer, vectors, ROWS, VECTOR)
            g, x = gs[i].to(COMPUTE), biased(xs[i], bias, bias_ptr, COMPUTE)
            if second_grad_ptr is not None:
                g += seconds[i].to(COMPUTE)
            gx = g * _slope(x, t_r, a_r, t_l, a_l)
            if INPUT:
                write(gx_ptr + start + offsets, gx.to(xs[i].dtype), mask, EVEN)
            if PARAMS:
                r0, r1, l0, l1 = _tails(g, x, t_r, t_l)
                right0 += tl.sum(r0, 1)
                right1 += tl.sum(r1, 1)
                left0 += tl.sum(l0, 1)
                left1 += tl.sum(l1, 1)
            if INPUT_SUMS:
                input0 += tl.sum(gx, 1)
    plane = tl.zeros((), tl.int64) + splits * vectors  # sums: (planes, splits, vectors)
    at = split * vectors + vector
    if PARAMS:
        _write_sums(sums_ptr, at, plane, in_row, right0, right1, left0, left1)
    if INPUT_SUMS:  # the last plane
        tl.store(sums_ptr + PARAMS * 4 * plane + at, input0, mask=in_row)


@triton.jit
def backward_columns(
    g_ptr, x_ptr, gx_ptr, sums_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, second_grad_ptr,
    z_or_residual_ptr, mean_ptr, scale_ptr, shift_ptr,
    total, columns, period, inner, steps, splits,
    INPUT: tl.constexpr, PARAMS: tl.constexpr, INPUT_SUMS: tl.constexpr, COMPUTE: tl.constexpr,
    REPEAT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    block, split = program()
    k, in_row = block_columns(block, columns, COLUMNS, VECTOR)
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, k % period // inner, in_row, COMPUTE
    )
    t_r, a_r, t_l, a_l, bias = t_r[None, :], a_r[None, :], t_l[None, :], a_l[None, :], bias[None, :]
    if mean_ptr is not None:
        mean = tl.load(mean_ptr + k % period // inner, mask=in_row, other=0)[None, :]
    if scale_ptr is not None:
        scale = tl.load(scale_ptr + k % period // inner, mask=in_row, other=0)[None, :]
        shift = tl.load(shift_ptr + k % period // inner, mask=in_row, other=0)[None, :]
    zeros = tl.zeros((ROWS, COLUMNS), dtype=COMPUTE)
    right0, right1, left0, left1, input0, input1 = zeros, zeros, zeros, zeros, zeros, zeros
    last = steps - 1 - split
    next_g = read_tiles(g_ptr, last, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN)
    next_x = read_tiles(x_ptr, last, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN)
    if second_grad_ptr is not None:
        next_second = read_tiles(
            second_grad_ptr, last, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN
        )
    if z_or_residual_ptr is not None:
        next_other = read_tiles(
            z_or_residual_ptr, last, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN
        )
    for passed in range(split, steps, splits):
        step = steps - 1 - passed
        gs, xs, after = next_g, next_x, step - splits
        next_g = read_tiles(g_ptr, after, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN)
        next_x = read_tiles(x_ptr, after, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN)
        if second_grad_ptr is not None:
            seconds = next_second
            next_second = read_tiles(
                second_grad_ptr, after, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN
            )
        if z_or_residual_ptr is not None:
            others = next_other
            next_other = read_tiles(
                z_or_residual_ptr, after, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN
            )
        for i in tl.static_range(REPEAT):
            start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
            g, x = gs[i].to(COMPUTE), biased(xs[i], bias, bias_ptr, COMPUTE)
            if scale_ptr is not None:  # x as it was normalised and stored
                centred = x - mean
                x = (centred * scale + shift).to(xs[i].dtype).to(COMPUTE)
                if z_or_residual_ptr is not None:
                    x = (x + others[i].to(COMPUTE)).to(xs[i].dtype).to(COMPUTE)
            elif z_or_residual_ptr is not None:
                centred = others[i].to(COMPUTE) - mean
            if second_grad_ptr is not None:
                g += seconds[i].to(COMPUTE)
            gx = g * _slope(x, t_r, a_r, t_l, a_l)
            if INPUT:
                write(gx_ptr + start + offsets, gx.to(xs[i].dtype), mask, EVEN)
            if PARAMS:
                # Written so, each is one predicated instruction.
                right, left = x >= t_r, x <= t_l
                right0 = tl.where(right, right0 + g, right0)
                right1 = tl.where(right, right1 + g * (x - t_r), right1)
                left0 = tl.where(left, left0 + g, left0)
                left1 = tl.where(left, left1 + g * (x - t_l), left1)
            if INPUT_SUMS:
                input0 += gx
            if mean_ptr is not None:
                input1 += gx * centred
    plane = tl.zeros((), tl.int64) + splits * columns  # sums: (planes, splits, columns)
    at = split * columns + k
    if PARAMS:
        _write_sums(
            sums_ptr, at, plane, in_row,
            tl.sum(right0, 0), tl.sum(right1, 0), tl.sum(left0, 0), tl.sum(left1, 0),
        )  # fmt: skip
    if INPUT_SUMS:  # after those of the parameters
        tl.store(sums_ptr + PARAMS * 4 * plane + at, tl.sum(input0, 0), mask=in_row)
    if mean_ptr is not None:
        tl.store(sums_ptr + (PARAMS * 4 + 1) * plane + at, tl.sum(input1, 0), mask=in_row)


@triton.jit(do_not_specialize_on_alignment=OUT)
def finish(
    sums_ptr, a_r_ptr, a_l_ptr, t_r_out, a_r_out, t_l_out, a_l_out, bias_out,
    splits, channels, inner,
    PARAMS: tl.constexpr, INPUT_SUMS: tl.constexpr, COMPUTE: tl.constexpr,
    PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Adds partial sums, (planes, splits, channels * inner), over splits and inner, in order."""
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    which = tl.program_id(1)
    real = c < channels
    factor = tl.full((CHANNELS,), 1, dtype=COMPUTE)
    if PARAMS:
        if which == 0:
            factor -= tl.load(a_r_ptr + c, mask=real, other=0).to(COMPUTE)
        elif which == 2:
            factor -= tl.load(a_l_ptr + c, mask=real, other=0).to(COMPUTE)
    total = tl.zeros((PARTS, CHANNELS), dtype=COMPUTE)
    base = sums_ptr + which.to(tl.int64) * splits * channels * inner
    for first in range(0, splits * inner, PARTS):
        part = first + tl.arange(0, PARTS)
        row = (part // inner) * channels * inner + part % inner
        mask = (part < splits * inner)[:, None] & real[None, :]
        total += tl.load(base + row[:, None] + c[None, :] * inner, mask=mask, other=0)
    grad = factor * tl.sum(total, 0)
    if PARAMS:
        if which == 0:
            tl.store(t_r_out + c, grad, mask=real)
        elif which == 1:
            tl.store(a_r_out + c, grad, mask=real)
        elif which == 2:
            tl.store(t_l_out + c, grad, mask=real)
        elif which == 3:
            tl.store(a_l_out + c, grad, mask=real)
    if INPUT_SUMS:  # noqa: SIM102  # of the two conditions this one is a constexpr
        if which >= PARAMS * 4:  # one row, or two
            tl.store(bias_out + (which - PARAMS * 4) * channels + c, grad, mask=real)
