"""The Triton kernels of SReLU's forward pass, and SReLU as a device function.

One kernel for each access pattern: runs, spans, rows and columns (`triton_memory`). Parameters are
loaded once for a vector of a run, for a tile of one channel or two, for the vectors at one offset
in several rows, or for the columns. Their loads are issued with those of the input: a program waits
for memory once, and once more where it has two channels.

With a bias, all of this is computed for x + bias, which is never stored.

Slow for short runs of odd length, whose elements a thread cannot load as a vector.
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
    span_tile,
    vector_tile,
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
    bias = t_r  # a placeholder where there is none; `biased` does not use it
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
    """The three linear pieces of a channel's SReLU and their breakpoints.

    Between the thresholds is the identity, or, where they have crossed, the line of both tails.
    """
    i_r, i_l = t_r * (1 - a_r), t_l * (1 - a_l)
    lower, upper, crossed = tl.minimum(t_l, t_r), tl.maximum(t_l, t_r), t_l > t_r
    # Where the right tail is the identity, t_r must change no bit: the left tail ends at t_l then,
    # with t_l itself.
    lower = tl.where(a_r == 1, t_l, lower)
    slope = tl.where(crossed, a_l + (a_r - 1), 1.0)
    intercept = tl.where(crossed, i_r + i_l, 0.0)
    # A flat tail is flat at infinity too, where 0 * inf would be NaN: the input is clamped to
    # the threshold.
    inf: tl.constexpr = float("inf")
    least, most = tl.where(a_l == 0, lower, -inf), tl.where(a_r == 0, upper, inf)
    return lower, upper, slope, intercept, a_r, i_r, most, a_l, i_l, least


@triton.jit
def _value(x, pieces):
    """SReLU by region. Written so, the tails are predicated instructions."""
    lower, upper, slope, intercept, a_r, i_r, most, a_l, i_l, least = pieces
    y = slope * x + intercept  # of NaN too
    y = tl.where(x >= upper, a_r * tl.minimum(x, most) + i_r, y)
    return tl.where(x <= lower, a_l * tl.maximum(x, least) + i_l, y)


# ---- kernels ----


@triton.jit
def forward_runs(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr,
    total, vectors, per_run, channels,
    COMPUTE: tl.constexpr, VECTORS: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    start, offsets, mask, vector = vector_tile(tl.program_id(0), total, vectors, VECTORS, VECTOR)
    stored = read(x_ptr + start + offsets, mask, EVEN)
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, vector // per_run % channels,
        True if EVEN else vector < vectors, COMPUTE,
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
    start, offsets, mask, c, next_c, own = span_tile(tl.program_id(0), total, inner, channels, TILE)
    stored = read(x_ptr + start + offsets, mask, EVEN)
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, True, COMPUTE
    )
    y = _value(biased(stored, bias, bias_ptr, COMPUTE), _pieces(t_r, a_r, t_l, a_l))
    if own < TILE:
        t_r, a_r, t_l, a_l, bias = load_params(
            t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, next_c, True, COMPUTE
        )
        other = _value(biased(stored, bias, bias_ptr, COMPUTE), _pieces(t_r, a_r, t_l, a_l))
        y = tl.where(offsets < own, y, other)
    write(y_ptr + start + offsets, y.to(stored.dtype), mask, EVEN)


@triton.jit
def forward_rows(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr,
    outer, vectors, per_run,
    COMPUTE: tl.constexpr, ROWS: tl.constexpr, VECTORS: tl.constexpr, VECTOR: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    block, step = program()
    vector = block * VECTORS + tl.arange(0, VECTORS)
    in_row = vector < vectors
    rows = read_rows(x_ptr, step, vector, in_row, outer, vectors, ROWS, VECTOR, EVEN)
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, vector // per_run,
        True if EVEN else in_row, COMPUTE,
    )  # fmt: skip
    pieces = _pieces(t_r[:, None], a_r[:, None], t_l[:, None], a_l[:, None])
    for i in tl.static_range(ROWS):
        start, offsets, mask = row_tile(step, i, vector, in_row, outer, vectors, ROWS, VECTOR)
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
    param_mask = True if EVEN else in_row
    t_r, a_r, t_l, a_l, bias = load_params(
        t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, bias_ptr, x_ptr, c, param_mask, COMPUTE
    )
    # The compiler sinks no load past it to its first use.
    tl.debug_barrier()
    pieces = _pieces(t_r[None, :], a_r[None, :], t_l[None, :], a_l[None, :])
    for i in tl.static_range(REPEAT):
        start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
        y = _value(biased(tiles[i], bias[None, :], bias_ptr, COMPUTE), pieces)
        write(y_ptr + start + offsets, y.to(tiles[i].dtype), mask, EVEN)
