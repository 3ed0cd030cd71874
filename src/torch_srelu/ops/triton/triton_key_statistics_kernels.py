"""Key statistics of a batch on CUDA, device side; the host side is in `triton_key_statistics`.

A tensor is tiled as for SReLU itself (`triton_tiling`): runs, whose channel is one for a program,
and columns. It is read once, in its own dtype; keys exist in registers only. A program reduces what
it reads and adds it to the results with one atomic operation a channel at its end; a key inside the
interval costs one more. All of it is integer arithmetic, whose result is the same in any order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_memory import block_columns, column_tile, program, read


@triton.jit
def _keys(x, LIMIT: tl.constexpr):
    """`ordered_keys.to_keys` of numbers that may be narrower than a key."""
    if x.dtype == tl.bfloat16:  # the upper half of a float32
        bits = x.to(tl.int16, bitcast=True).to(tl.int32) << 16
    elif x.dtype == tl.float64:
        bits = x.to(tl.int64, bitcast=True)
    else:
        bits = x.to(tl.float32).to(tl.int32, bitcast=True)
    magnitude = bits & LIMIT
    return tl.where(bits < 0, -magnitude, magnitude)


@triton.jit
def _interval(lo_ptr, hi_ptr, gap_ptr, shift_ptr, first_ptr, c, mask, KEY: tl.constexpr):
    lo = tl.load(lo_ptr + c, mask=mask, other=0).to(KEY)
    hi = tl.load(hi_ptr + c, mask=mask, other=0).to(KEY)
    gap = tl.load(gap_ptr + c, mask=mask, other=0).to(KEY)
    shift = tl.load(shift_ptr + c, mask=mask, other=0).to(KEY)
    first = tl.load(first_ptr + c, mask=mask, other=0).to(KEY)
    return lo, hi, gap, shift, first


@triton.jit
def _run_tile(step, c, outer, channels, inner, segments, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Step ``step`` of channel ``c``: BLOCK elements of ROWS of its runs."""
    row, column = (step // segments).to(tl.int64) * ROWS, (step % segments).to(tl.int64) * BLOCK
    o, k = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    rows, columns = tl.minimum(outer - row, ROWS), tl.minimum(inner - column, BLOCK)
    mask = (o < rows.to(tl.int32))[:, None] & (k < columns.to(tl.int32))[None, :]
    start = (row * channels + c) * inner + column
    return start, o[:, None] * (channels * inner) + k[None, :], mask


@triton.jit
def _read_keys(x_ptr, offsets, mask, LIMIT: tl.constexpr, EVEN: tl.constexpr):
    # One element to a thread: atomic operations take them that way, and elements read as vectors
    # would have to change threads first.
    return _keys(read(tl.max_contiguous(x_ptr + offsets, (1, 1)), mask, EVEN), LIMIT)


@triton.jit
def _statistics(
    keys, mask, lo, hi, checksum, below, smallest, largest, LIMIT: tl.constexpr, EVEN: tl.constexpr
):  # fmt: skip
    """Adds a tile to the statistics, and returns which keys are inside the interval, too."""
    under, inside = keys < lo, (keys >= lo) & (keys <= hi)
    low, high = keys, keys
    if not EVEN:  # keys outside of the tensor are zero, and must not count
        under, inside = under & mask, inside & mask
        low, high = tl.where(mask, keys, LIMIT), tl.where(mask, keys, -LIMIT)
    checksum += keys
    below += under.to(tl.int32)
    return inside, checksum, below, tl.minimum(smallest, low), tl.maximum(largest, high)


@triton.jit
def _add_inside(
    keys, inside, c, gap, shift, bins_ptr, keys_ptr, channels_ptr, number_ptr, size,
    COLLECT: tl.constexpr,
):  # fmt: skip
    """Counts keys in their bins, or collects them, with their channels, while there is room."""
    one = tl.full(keys.shape, 1, tl.int64)
    if COLLECT:
        at = tl.atomic_add(number_ptr + tl.zeros(keys.shape, tl.int32), one, inside, sem="relaxed")
        room = inside & (at < size)
        tl.store(keys_ptr + at, keys.to(tl.int64), mask=room)
        tl.store(channels_ptr + at, tl.zeros(keys.shape, tl.int64) + c, mask=room)
    else:
        shrunk = tl.maximum(tl.abs(keys) - gap, 0)  # as by `softshrink`
        shrunk = tl.where(keys < 0, -shrunk, shrunk)
        tl.atomic_add(bins_ptr + (shrunk >> shift), one, inside, sem="relaxed")


@triton.jit
def _add_to_results(
    checksum_ptr, below_ptr, smallest_ptr, largest_ptr, c, mask, checksum, below, smallest, largest
):  # fmt: skip
    """Adds the statistics of a program, for the channels ``c``, to those of all programs."""
    tl.atomic_add(checksum_ptr + c, checksum, mask, sem="relaxed")
    tl.atomic_add(below_ptr + c, below, mask, sem="relaxed")
    tl.atomic_min(smallest_ptr + c, smallest, mask, sem="relaxed")
    tl.atomic_max(largest_ptr + c, largest, mask, sem="relaxed")


# Code specialized for these sizes would be no faster, and the first `adapt` waits for its compiler.
@triton.jit(do_not_specialize=["outer", "segments", "steps", "splits", "size"])
def run_statistics(
    x_ptr, lo_ptr, hi_ptr, gap_ptr, shift_ptr, first_ptr, checksum_ptr, below_ptr, smallest_ptr,
    largest_ptr, out_ptr, channels_ptr, number_ptr,
    outer, channels, inner, segments, steps, splits, size,
    KEY: tl.constexpr, LIMIT: tl.constexpr, COLLECT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    c, split = program()
    lo, hi, gap, shift, first = _interval(
        lo_ptr, hi_ptr, gap_ptr, shift_ptr, first_ptr, c, True, KEY
    )
    bins_ptr = out_ptr + (c.to(tl.int64) * size - first)  # of the bin that would have number 0
    checksum = tl.zeros((ROWS, BLOCK), KEY)
    below = tl.zeros((ROWS, BLOCK), tl.int32)
    smallest, largest = tl.full((ROWS, BLOCK), LIMIT, KEY), tl.full((ROWS, BLOCK), -LIMIT, KEY)
    for step in range(split, steps, splits):
        start, offsets, mask = _run_tile(step, c, outer, channels, inner, segments, ROWS, BLOCK)
        keys = _read_keys(x_ptr + start, offsets, mask, LIMIT, EVEN)
        inside, checksum, below, smallest, largest = _statistics(
            keys, mask, lo, hi, checksum, below, smallest, largest, LIMIT, EVEN
        )
        _add_inside(
            keys, inside, c, gap, shift, bins_ptr, out_ptr, channels_ptr, number_ptr, size, COLLECT
        )
    # Sums in 64 bits: modulo the key's width they are the same.
    _add_to_results(
        checksum_ptr, below_ptr, smallest_ptr, largest_ptr, c, c < channels,
        tl.sum(checksum.to(tl.int64)), tl.sum(below.to(tl.int64)),
        tl.min(smallest).to(tl.int64), tl.max(largest).to(tl.int64),
    )  # fmt: skip


@triton.jit(do_not_specialize=["total", "steps", "splits", "size"])
def column_statistics(
    x_ptr, lo_ptr, hi_ptr, gap_ptr, shift_ptr, first_ptr, checksum_ptr, below_ptr, smallest_ptr,
    largest_ptr, out_ptr, channels_ptr, number_ptr,
    total, columns, period, inner, steps, splits, size,
    KEY: tl.constexpr, LIMIT: tl.constexpr, COLLECT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    block, split = program()
    k, in_row = block_columns(block, columns, COLUMNS, VECTOR)
    c = k % period // inner
    lo, hi, gap, shift, first = _interval(
        lo_ptr, hi_ptr, gap_ptr, shift_ptr, first_ptr, c, in_row, KEY
    )
    bins_ptr = out_ptr + (c.to(tl.int64) * size - first)  # of the bin that would have number 0
    checksum = tl.zeros((ROWS, COLUMNS), KEY)
    below = tl.zeros((ROWS, COLUMNS), tl.int32)
    smallest, largest = tl.full((ROWS, COLUMNS), LIMIT, KEY), tl.full((ROWS, COLUMNS), -LIMIT, KEY)
    for step in range(split, steps, splits):
        start, offsets, mask = column_tile(step, 0, total, columns, k, in_row, 1, ROWS)
        keys = _read_keys(x_ptr + start, offsets, mask, LIMIT, EVEN)
        inside, checksum, below, smallest, largest = _statistics(
            keys, mask, lo[None, :], hi[None, :],
            checksum, below, smallest, largest, LIMIT, EVEN,
        )  # fmt: skip
        _add_inside(
            keys, inside, c[None, :], gap[None, :], shift[None, :], bins_ptr[None, :],
            out_ptr, channels_ptr, number_ptr, size, COLLECT,
        )  # fmt: skip
    _add_to_results(
        checksum_ptr, below_ptr, smallest_ptr, largest_ptr, c, in_row,
        tl.sum(checksum.to(tl.int64), 0), tl.sum(below.to(tl.int64), 0),
        tl.min(smallest, 0).to(tl.int64), tl.max(largest, 0).to(tl.int64),
    )  # fmt: skip
