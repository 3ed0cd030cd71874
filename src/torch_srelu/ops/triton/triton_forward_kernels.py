"""The CUDA execution, device side: Triton kernels, the function and the forward pass.

One kernel for each way in which programs go through memory: runs, spans, rows and columns
(`triton_tiles`). Parameters are loaded once for a vector of a run, for a tile of one channel or
two, for the vectors of several rows that lie below each other, or for the columns, and are asked
for with the input: a program waits for memory once, where it has two channels twice.

With a bias, all of this is done for x + bias, which is never stored.

The backward pass is in `triton_backward_kernels`.

Slow where: short runs of odd length, where a thread's neighbours are not of one channel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_memory import (
    block_columns,
    column_channels,
    column_tile,
    program,
    read,
    read_rows,
    row_tile,
    span,
    vectors,
    write,
)

# ---- the function ----


@triton.jit
def load_params(
    t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, mask, COMPUTE: tl.constexpr
):
    """The parameters of channels ``c``, and their bias."""
    t_r = tl.load(t_r_ptr + c, mask=mask, other=0).to(COMPUTE)
    a_r = tl.load(a_r_ptr + c, mask=mask, other=0).to(COMPUTE)
    t_l = tl.load(t_l_ptr + c, mask=mask, other=0).to(COMPUTE)
    a_l = tl.load(a_l_ptr + c, mask=mask, other=0).to(COMPUTE)
    bias = t_r  # stands for a bias where there is none; `biased` does not look at it
    if bias_ptr is not None:  # as torch would add it: in the dtype of x
        bias = tl.load(bias_ptr + c, mask=mask, other=0).to(x_ptr.dtype.element_ty).to(COMPUTE)
    return t_r, a_r, t_l, a_l, bias


@triton.jit
def biased(stored, bias, bias_ptr, COMPUTE: tl.constexpr):
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


# ---- kernels ----


@triton.jit
def forward_runs(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr,
    total, lanes, per_run, channels,
    COMPUTE: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    start, offsets, mask, lane = vectors(tl.program_id(0), total, lanes, LANES, VECTOR)
    stored = read(x_ptr + start + offsets, mask, EVEN)
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, lane // per_run % channels,
        True if EVEN else lane < lanes, COMPUTE,
    )  # fmt: skip
    pieces = _pieces(t_r[:, None], a_r[:, None], t_l[:, None], a_l[:, None])
    y = _value(biased(stored, bias[:, None], bias_ptr, COMPUTE), pieces)
    write(y_ptr + start + offsets, y.to(stored.dtype), mask, EVEN)


@triton.jit
def forward_spans(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr,
    total, inner, channels,
    COMPUTE: tl.constexpr, TILE: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    start, offsets, mask, c, following, own = span(tl.program_id(0), total, inner, channels, TILE)
    stored = read(x_ptr + start + offsets, mask, EVEN)
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, True, COMPUTE
    )
    y = _value(biased(stored, bias, bias_ptr, COMPUTE), _pieces(t_r, a_r, t_l, a_l))
    if own < TILE:
        t_r, a_r, t_l, a_l, bias = load_params(
            t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, following, True, COMPUTE
        )
        other = _value(biased(stored, bias, bias_ptr, COMPUTE), _pieces(t_r, a_r, t_l, a_l))
        y = tl.where(offsets < own, y, other)
    write(y_ptr + start + offsets, y.to(stored.dtype), mask, EVEN)


@triton.jit
def forward_rows(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr,
    outer, lanes, per_run,
    COMPUTE: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    block, step = program()
    lane = block * LANES + tl.arange(0, LANES)
    there = lane < lanes
    rows = read_rows(x_ptr, step, lane, there, outer, lanes, ROWS, VECTOR, EVEN)
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, lane // per_run,
        True if EVEN else there, COMPUTE,
    )  # fmt: skip
    pieces = _pieces(t_r[:, None], a_r[:, None], t_l[:, None], a_l[:, None])
    for i in tl.static_range(ROWS):
        start, offsets, mask = row_tile(step, i, lane, there, outer, lanes, ROWS, VECTOR)
        y = _value(biased(rows[i], bias[:, None], bias_ptr, COMPUTE), pieces)
        write(y_ptr + start + offsets, y.to(rows[i].dtype), mask, EVEN)


@triton.jit
def forward_columns(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr,
    total, columns, period, inner,
    COMPUTE: tl.constexpr, ALIGNED: tl.constexpr, REPEAT: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    block, step = program()
    k, in_row = block_columns(block, columns, COLUMNS, VECTOR)
    tiles = ()
    for i in tl.static_range(REPEAT):
        start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
        tiles += (read(x_ptr + start + offsets, mask, EVEN),)
    c = column_channels(k, period, inner, VECTOR, ALIGNED)
    there = True if EVEN else in_row
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, there, COMPUTE
    )
    # The compiler moves no load across it, down to where what it reads is used.
    tl.debug_barrier()
    pieces = _pieces(t_r[None, :], a_r[None, :], t_l[None, :], a_l[None, :])
    for i in tl.static_range(REPEAT):
        start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
        y = _value(biased(tiles[i], bias[None, :], bias_ptr, COMPUTE), pieces)
        write(y_ptr + start + offsets, y.to(tiles[i].dtype), mask, EVEN)
