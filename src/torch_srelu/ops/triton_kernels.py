"""The CUDA execution, device side: Triton kernels, forward and a fused backward.

One kernel for each of the two ways in which channels lie in memory, runs and columns
(`triton_tiles`), and for each pass. Of runs, the parameters are four scalars of a program; of
columns, they are loaded once for a block and used for several rows: in the forward pass for as many
as are read at once, in the backward pass, which has sums to write, for many.

With a bias, all of this is done for x + bias, which is never stored.

The gradient that comes in may be given as two parts, whose sum is never stored either, and a
normalisation before SReLU may be joined (`joined.Norm`), of columns only. The backward
writes the input gradient and, in the same pass, sums four numbers for every channel:
g and g (x - t) over the right and over the left tail; a bias adds the sum of the input gradient, a
normalisation that and another one (INPUT_SUMS).
Each program keeps its sums in registers and writes one partial result; a second, small kernel adds
these in a fixed order. No atomics: the same input gives the same bits. Where one program sees all
of a channel, it finishes the job itself. The second kernel may get ready while the first still runs
(CHAINED), and waits for its sums. The backward goes through a tensor from its end: what the kernels
before it wrote or read last may still be in the cache.

Slow where: runs whose length is no multiple of 16 cannot be read in wide vectors.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .triton_tiles import (
    block_columns,
    column_channels,
    column_tile,
    read,
    read_tiles,
    run_lanes,
    run_tile,
    write,
)

# Gradients of parameters: rows of one tensor may begin anywhere.
OUT = ["t_r_out", "a_r_out", "t_l_out", "a_l_out", "bias_out"]
# `joined.Norm`. With a scale, x stands for z, and beside it is the residual; else z is beside x.
NORM = ["beside_ptr", "mean_ptr", "scale_ptr", "shift_ptr"]

# ---- the function ----


@triton.jit
def _load(t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, mask, COMPUTE: tl.constexpr):
    t_r = tl.load(t_r_ptr + c, mask=mask, other=0).to(COMPUTE)
    a_r = tl.load(a_r_ptr + c, mask=mask, other=0).to(COMPUTE)
    t_l = tl.load(t_l_ptr + c, mask=mask, other=0).to(COMPUTE)
    a_l = tl.load(a_l_ptr + c, mask=mask, other=0).to(COMPUTE)
    bias = t_r  # stands for a bias where there is none; `_biased` does not look at it
    if bias_ptr is not None:  # as torch would add it: in the dtype of x
        bias = tl.load(bias_ptr + c, mask=mask, other=0).to(x_ptr.dtype.element_ty).to(COMPUTE)
    return t_r, a_r, t_l, a_l, bias


@triton.jit
def _biased(stored, bias, bias_ptr, COMPUTE: tl.constexpr):
    """x, or x + bias rounded as torch would have stored it."""
    x = stored.to(COMPUTE)
    if bias_ptr is not None:
        x = (x + bias).to(stored.dtype).to(COMPUTE)
    return x


@triton.jit
def _pieces(t_r, a_r, t_l, a_l):
    """The three lines of SReLU and where they meet; it depends on the channel alone.

    Between the thresholds is the identity, or, where they have crossed, the line of both tails.
    """
    i_r, i_l = t_r * (1 - a_r), t_l * (1 - a_l)
    lower, upper, crossed = tl.minimum(t_l, t_r), tl.maximum(t_l, t_r), t_l > t_r
    # Where the right tail is the identity, t_r must change no bit: the left tail ends at t_l then,
    # with t_l itself.
    lower = tl.where(a_r == 1, t_l, lower)
    slope = tl.where(crossed, a_l + (a_r - 1), 1.0)
    intercept = tl.where(crossed, i_r + i_l, 0.0)
    # A flat tail is flat at infinity too, where 0 * inf would be NaN: there, the input may as well
    # be the threshold.
    inf: tl.constexpr = float("inf")
    least, most = tl.where(a_l == 0, lower, -inf), tl.where(a_r == 0, upper, inf)
    return lower, upper, slope, intercept, a_r, i_r, most, a_l, i_l, least


@triton.jit
def _value(x, pieces):
    """SReLU by region. Written so, what a tail changes are instructions skipped outside of it."""
    lower, upper, slope, intercept, a_r, i_r, most, a_l, i_l, least = pieces
    y = slope * x + intercept  # of NaN too
    y = tl.where(x >= upper, a_r * tl.minimum(x, most) + i_r, y)
    return tl.where(x <= lower, a_l * tl.maximum(x, least) + i_l, y)


@triton.jit
def _slope(x, t_r, a_r, t_l, a_l):
    right, left = x >= t_r, x <= t_l
    return tl.where(left, tl.where(right, a_l + (a_r - 1), a_l), tl.where(right, a_r, 1.0))


# ---- kernels ----


@triton.jit
def forward_runs(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr,
    outer, channels, inner, segments, steps, splits,
    COMPUTE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    c, split = tl.program_id(0) % channels, tl.program_id(0) // channels
    t_r, a_r, t_l, a_l, bias = _load(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, True, COMPUTE
    )
    pieces = _pieces(t_r, a_r, t_l, a_l)
    for step in range(split, steps, splits):
        start, offsets, mask = run_tile(step, c, outer, channels, inner, segments, ROWS, BLOCK)
        stored = read(x_ptr + start + offsets, mask, EVEN)
        y = _value(_biased(stored, bias, bias_ptr, COMPUTE), pieces)
        write(y_ptr + start + offsets, y.to(stored.dtype), mask, EVEN)


# Code made for one block would know that its columns start at 0, and give each thread more of them.
@triton.jit(do_not_specialize=["blocks"])
def forward_columns(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr,
    total, columns, period, inner, blocks,
    COMPUTE: tl.constexpr, ALIGNED: tl.constexpr, REPEAT: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    block, step = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    k, in_row = block_columns(block, columns, COLUMNS, VECTOR)
    tiles = ()
    for i in tl.static_range(REPEAT):
        start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
        tiles += (read(x_ptr + start + offsets, mask, EVEN),)
    c = column_channels(k, period, inner, VECTOR, ALIGNED)
    there = True if EVEN else in_row
    t_r, a_r, t_l, a_l, bias = _load(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, there, COMPUTE
    )
    # The compiler moves no load across it, down to where what it reads is used.
    tl.debug_barrier()
    pieces = _pieces(t_r[None, :], a_r[None, :], t_l[None, :], a_l[None, :])
    for i in tl.static_range(REPEAT):
        start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
        y = _value(_biased(tiles[i], bias[None, :], bias_ptr, COMPUTE), pieces)
        write(y_ptr + start + offsets, y.to(tiles[i].dtype), mask, EVEN)


@triton.jit(do_not_specialize_on_alignment=OUT)
def backward_runs(
    g_ptr, x_ptr, gx_ptr, sums_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, more_ptr,
    t_r_out, a_r_out, t_l_out, a_l_out, bias_out,
    outer, channels, inner, segments, steps, splits,
    INPUT: tl.constexpr, PARAMS: tl.constexpr, INPUT_SUMS: tl.constexpr, COMPUTE: tl.constexpr,
    CHAINED: tl.constexpr, ALONE: tl.constexpr, REPEAT: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    if CHAINED:
        gdc_launch_dependents()
    c, split = channels - 1 - tl.program_id(0) % channels, tl.program_id(0) // channels
    t_r, a_r, t_l, a_l, bias = _load(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, True, COMPUTE
    )
    # A thread keeps one sum of each kind: what it reads at once is added up first.
    zeros = tl.zeros((ROWS * (BLOCK // VECTOR),), dtype=COMPUTE)
    right0, right1, left0, left1, input0 = zeros, zeros, zeros, zeros, zeros
    for step in range(split, steps, splits):
        start, offsets, mask = run_lanes(
            steps - 1 - step, c, outer, channels, inner, segments, REPEAT, ROWS, BLOCK, VECTOR
        )
        g = read(g_ptr + start + offsets, mask, EVEN).to(COMPUTE)
        if more_ptr is not None:
            g += read(more_ptr + start + offsets, mask, EVEN).to(COMPUTE)
        stored = read(x_ptr + start + offsets, mask, EVEN)
        x = _biased(stored, bias, bias_ptr, COMPUTE)
        gx = g * _slope(x, t_r, a_r, t_l, a_l)
        if INPUT:
            write(gx_ptr + start + offsets, gx.to(stored.dtype), mask, EVEN)
        if PARAMS:
            right, left = tl.where(x >= t_r, g, 0.0), tl.where(x <= t_l, g, 0.0)
            right0 += tl.sum(tl.sum(right, 2), 0)
            left0 += tl.sum(tl.sum(left, 2), 0)
            # max and min change nothing in their tail; outside they keep NaN and inf from 0 * inf
            right1 += tl.sum(tl.sum(right * tl.maximum(x - t_r, 0.0), 2), 0)
            left1 += tl.sum(tl.sum(left * tl.minimum(x - t_l, 0.0), 2), 0)
        if INPUT_SUMS:
            input0 += tl.sum(tl.sum(gx, 2), 0)
    if ALONE:  # this program has seen all of the channel: these are the gradients
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
            out = sums_ptr + at
            tl.store(out, tl.sum(right0))
            tl.store(out + plane, tl.sum(right1))
            tl.store(out + 2 * plane, tl.sum(left0))
            tl.store(out + 3 * plane, tl.sum(left1))
        if INPUT_SUMS:  # the last plane
            tl.store(sums_ptr + PARAMS * 4 * plane + at, tl.sum(input0))


@triton.jit(do_not_specialize=["blocks"])
def backward_columns(
    g_ptr, x_ptr, gx_ptr, sums_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, more_ptr,
    beside_ptr, mean_ptr, scale_ptr, shift_ptr,
    total, columns, period, inner, blocks, steps, splits,
    INPUT: tl.constexpr, PARAMS: tl.constexpr, INPUT_SUMS: tl.constexpr, COMPUTE: tl.constexpr,
    CHAINED: tl.constexpr, REPEAT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    if CHAINED:
        gdc_launch_dependents()
    block, split = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    k, in_row = block_columns(block, columns, COLUMNS, VECTOR)
    t_r, a_r, t_l, a_l, bias = _load(
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
    if more_ptr is not None:
        next_m = read_tiles(more_ptr, last, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN)
    if beside_ptr is not None:
        next_b = read_tiles(beside_ptr, last, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN)
    for passed in range(split, steps, splits):
        step = steps - 1 - passed
        gs, xs, after = next_g, next_x, step - splits
        next_g = read_tiles(g_ptr, after, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN)
        next_x = read_tiles(x_ptr, after, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN)
        if more_ptr is not None:
            ms = next_m
            next_m = read_tiles(
                more_ptr, after, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN
            )
        if beside_ptr is not None:
            bs = next_b
            next_b = read_tiles(
                beside_ptr, after, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN
            )
        for i in tl.static_range(REPEAT):
            start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
            g, x = gs[i].to(COMPUTE), _biased(xs[i], bias, bias_ptr, COMPUTE)
            if scale_ptr is not None:  # x as it was normalised and stored
                centred = x - mean
                x = (centred * scale + shift).to(xs[i].dtype).to(COMPUTE)
                if beside_ptr is not None:
                    x = (x + bs[i].to(COMPUTE)).to(xs[i].dtype).to(COMPUTE)
            elif beside_ptr is not None:
                centred = bs[i].to(COMPUTE) - mean
            if more_ptr is not None:
                g += ms[i].to(COMPUTE)
            gx = g * _slope(x, t_r, a_r, t_l, a_l)
            if INPUT:
                write(gx_ptr + start + offsets, gx.to(xs[i].dtype), mask, EVEN)
            if PARAMS:
                # Written so, each is one instruction that is skipped outside of its tail.
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
        out = sums_ptr + at
        tl.store(out, tl.sum(right0, 0), mask=in_row)
        tl.store(out + plane, tl.sum(right1, 0), mask=in_row)
        tl.store(out + 2 * plane, tl.sum(left0, 0), mask=in_row)
        tl.store(out + 3 * plane, tl.sum(left1, 0), mask=in_row)
    if INPUT_SUMS:  # behind those of the parameters
        tl.store(sums_ptr + PARAMS * 4 * plane + at, tl.sum(input0, 0), mask=in_row)
    if mean_ptr is not None:
        tl.store(sums_ptr + (PARAMS * 4 + 1) * plane + at, tl.sum(input1, 0), mask=in_row)


@triton.jit(do_not_specialize_on_alignment=OUT)
def finish(
    sums_ptr, a_r_ptr, a_l_ptr, t_r_out, a_r_out, t_l_out, a_l_out, bias_out,
    splits, channels, inner,
    PARAMS: tl.constexpr, INPUT_SUMS: tl.constexpr, COMPUTE: tl.constexpr, CHAINED: tl.constexpr,
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
    if CHAINED:  # to the kernel that makes the sums
        gdc_wait()
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
    if INPUT_SUMS:  # noqa: SIM102  # of the two conditions this one is known when it is compiled
        if which >= PARAMS * 4:  # one row, or two
            tl.store(bias_out + (which - PARAMS * 4) * channels + c, grad, mask=real)
