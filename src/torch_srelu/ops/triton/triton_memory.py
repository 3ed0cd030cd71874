"""The tiles in which the CUDA kernels go through a tensor: where each lies, and how it is read.

Tensors come as (outer, C, inner) in memory order (`layout.View`), in one of these ways:

* runs: a channel's values lie together (NCHW). They are read in vectors, each of one channel, which
  is a thread's lane; the forward pass goes through memory as it comes, and in the backward pass a
  program sees one channel only.
* spans: long runs that begin anywhere. The forward pass goes through memory as it comes, in tiles
  no longer than a run: of one channel, or of one and the next.
* rows: runs that would leave threads idle, or are read in shorter vectors. Memory is (outer, C *
  inner); a program goes down the rows of a block of lanes.
* columns: the channel changes with every few elements (channels_last, (N, C), tiny feature maps).
  Memory is (outer, C * inner) too; a program goes down a block of columns. Several rows may count
  as one longer row, in which the channels repeat (`period`). Memory is slow to answer, so that much
  must be asked for at once: several tiles, and where there are more steps to a program, those of
  the next while this one is worked on.

A tile is a 64-bit start, 32-bit offsets from there, and a mask of what belongs to the tensor. How
large tiles are is decided on the host (`triton_cuts`).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def program():
    """The group of this program, a channel or a block of columns, and its number there."""
    # Not one number that is divided: the first loads would wait for that.
    return tl.program_id(0), tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)


@triton.jit
def vectors(step, total, lanes, LANES: tl.constexpr, VECTOR: tl.constexpr):
    """Step ``step`` of a whole tensor: LANES lanes of VECTOR neighbours, and which lanes these are.

    The last lane may be incomplete.
    """
    step += 0 * lanes  # as many bits as the number of lanes has
    start = step.to(tl.int64) * (LANES * VECTOR)
    offsets = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    return start, offsets, offsets < _rest(start, total), step * LANES + tl.arange(0, LANES)


@triton.jit
def span(step, total, inner, channels, TILE: tl.constexpr):
    """Step ``step`` of a whole tensor whose runs are no shorter than TILE: so many neighbours.

    Then the channel of the first, the next channel, and how many belong to the first.
    """
    start = (step + 0 * total) * TILE  # as many bits as the number of elements has
    offsets = tl.arange(0, TILE)
    run = start // inner
    c = run % channels
    following = tl.where(c + 1 == channels, 0, c + 1)
    own = tl.minimum((run + 1) * inner - start, TILE).to(tl.int32)
    return start, offsets, offsets < _rest(start, total), c, following, own


@triton.jit
def run_lanes(
    step, c, outer, channels, inner, segments,
    REPEAT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Step ``step`` of channel ``c``: BLOCK elements of REPEAT * ROWS of its runs.

    As (REPEAT, lanes, VECTOR): the middle one is threads.
    """
    lanes: tl.constexpr = BLOCK // VECTOR  # that share a run
    first = (step // segments).to(tl.int64) * (REPEAT * ROWS)
    column = (step % segments).to(tl.int64) * BLOCK
    lane = tl.arange(0, ROWS * lanes)[None, :, None]
    o = tl.arange(0, REPEAT)[:, None, None] * ROWS + lane // lanes
    k = (lane % lanes) * VECTOR + tl.arange(0, VECTOR)[None, None, :]
    rows, columns = tl.minimum(outer - first, REPEAT * ROWS), tl.minimum(inner - column, BLOCK)
    mask = (o < rows.to(tl.int32)) & (k < columns.to(tl.int32))
    return (first * channels + c) * inner + column, o * (channels * inner) + k, mask


@triton.jit
def row_tile(step, i, lane, there, outer, lanes, ROWS: tl.constexpr, VECTOR: tl.constexpr):
    """Row ``i`` of step ``step``: the vectors ``lane``, as far as they are ``there``."""
    row = step.to(tl.int64) * ROWS + i
    offsets = lane[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    mask = (there & (row < outer))[:, None]
    return row * lanes * VECTOR, tl.multiple_of(offsets, (1, VECTOR)), mask


@triton.jit
def read_rows(
    ptr, step, lane, there, outer, lanes,
    ROWS: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """All rows of a step, under way before the first is used."""
    tiles = ()
    # True always. The compiler does not know, and moves no load down to where it is used, as it
    # does in 16 bits.
    is_step = (step + tl.zeros(lane.shape, tl.int32) >= 0)[:, None]
    KNOWN: tl.constexpr = EVEN and ptr.dtype.element_ty.primitive_bitwidth > 16
    for i in tl.static_range(ROWS):
        start, offsets, mask = row_tile(step, i, lane, there, outer, lanes, ROWS, VECTOR)
        mask = is_step if EVEN else mask & is_step
        tiles += (read(ptr + start + offsets, mask, KNOWN),)
    return tiles


@triton.jit
def block_columns(block, columns, COLUMNS: tl.constexpr, VECTOR: tl.constexpr):
    """The columns of block ``block``, and which of them there are."""
    k = block * COLUMNS + tl.arange(0, COLUMNS)
    # Fewer columns to a thread leave room for their parameters and sums in its registers.
    return tl.max_contiguous(k, VECTOR), k < columns


@triton.jit
def column_channels(k, period, inner, VECTOR: tl.constexpr, ALIGNED: tl.constexpr):
    """The channels of columns; ALIGNED: inner is 1, and VECTOR of them are neighbours too."""
    if ALIGNED:
        return tl.max_contiguous(tl.multiple_of(k % period, VECTOR), VECTOR)
    return k % period // inner


@triton.jit
def column_tile(step, i, total, columns, k, in_row, REPEAT: tl.constexpr, ROWS: tl.constexpr):
    """Tile ``i`` of step ``step`` of a block of columns: ROWS rows; the last may be incomplete."""
    start = (step + tl.zeros((), tl.int64)) * (REPEAT * ROWS * columns) + i * ROWS * columns
    offsets = tl.arange(0, ROWS)[:, None] * columns + k[None, :]
    return start, offsets, (offsets < _rest(start, total)) & in_row[None, :]


@triton.jit
def _rest(start, total):
    """How many elements follow ``start``, as far as a tile can reach."""
    # A multiple of 16, as sizes often are: masks then keep whole vectors together.
    return tl.minimum(total - start, 2**31 - 16).to(tl.int32)


@triton.jit
def read(pointers, mask, EVEN: tl.constexpr):
    """Zeros outside of the tensor; EVEN says that no tile reaches there."""
    if EVEN:
        return tl.load(pointers)
    return tl.load(pointers, mask=mask, other=0)


@triton.jit
def write(pointers, value, mask, EVEN: tl.constexpr):
    if EVEN:
        tl.store(pointers, value)
    else:
        tl.store(pointers, value, mask=mask)


@triton.jit
def _read_tile(
    ptr, step, i, steps, total, columns, k, in_row,
    REPEAT: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Tile ``i`` of a step; zeros where there is no such step, for those who read ahead."""
    start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
    step += tl.zeros(k.shape, tl.int32)
    is_step = ((step >= 0) & (step < steps))[None, :]
    return tl.load(ptr + start + offsets, mask=is_step if EVEN else mask & is_step, other=0)


@triton.jit
def read_tiles(
    ptr, step, steps, total, columns, k, in_row,
    REPEAT: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """All tiles of a step, under way before the first is used."""
    tiles = ()
    for i in tl.static_range(REPEAT):
        tiles += (_read_tile(ptr, step, i, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN),)
    return tiles
