"""Access patterns of the Triton kernels: the address of every tile, and how it is read.

Tensors come as (outer, C, inner) in memory order (`layout.ChannelView`), in one of these patterns:

* runs: a channel's values are contiguous (NCHW). They are read in vectors, each of one channel and
  one thread; the forward pass goes through memory linearly, and in the backward pass a program
  works on one channel only.
* spans: long runs that begin anywhere. The forward pass goes through memory linearly, in tiles no
  longer than a run: of one channel, or of one and the next.
* rows: runs that would leave threads idle, or are read in shorter vectors. Memory is (outer, C *
  inner); a program loops over the rows of a block of vectors.
* columns: the channel changes with every few elements (channels_last, (N, C), tiny feature maps).
  Memory is (outer, C * inner) too; a program loops over the rows of a block of columns. Several
  rows may be taken as one longer row, in which the channels repeat (`period`). To hide memory
  latency, several tiles are in flight at once, and those of the next step are prefetched.

A tile is a 64-bit start, 32-bit offsets from there, and a mask of what belongs to the tensor. The
host decides how large tiles are (`triton_tiling`).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def program():
    """The group of this program, a channel or a block of columns, and its split."""
    # Not one index that is divided: the first loads would wait for the division.
    return tl.program_id(0), tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)


@triton.jit
def vector_tile(step, total, vectors, VECTORS: tl.constexpr, VECTOR: tl.constexpr):
    """Tile ``step`` of a whole tensor: VECTORS vectors of VECTOR elements, and their indices.

    The last vector may be incomplete.
    """
    step += 0 * vectors  # to the width of the number of vectors
    start = step.to(tl.int64) * (VECTORS * VECTOR)
    offsets = tl.arange(0, VECTORS)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    return start, offsets, offsets < _rest(start, total), step * VECTORS + tl.arange(0, VECTORS)


@triton.jit
def span_tile(step, total, inner, channels, TILE: tl.constexpr):
    """Tile ``step`` of a whole tensor whose runs are no shorter than TILE elements.

    Then the channel of the first element, the next channel, and how many belong to the first.
    """
    start = (step + 0 * total) * TILE  # to the width of the number of elements
    offsets = tl.arange(0, TILE)
    run = start // inner
    c = run % channels
    next_c = tl.where(c + 1 == channels, 0, c + 1)
    own = tl.minimum((run + 1) * inner - start, TILE).to(tl.int32)
    return start, offsets, offsets < _rest(start, total), c, next_c, own


@triton.jit
def run_tile(
    step, c, outer, channels, inner, segments,
    REPEAT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """Tile ``step`` of channel ``c``: BLOCK elements of REPEAT * ROWS of its runs.

    As (REPEAT, vectors, VECTOR): threads go along the middle axis.
    """
    vectors: tl.constexpr = BLOCK // VECTOR  # of a run
    first = (step // segments).to(tl.int64) * (REPEAT * ROWS)
    column = (step % segments).to(tl.int64) * BLOCK
    vector = tl.arange(0, ROWS * vectors)[None, :, None]
    o = tl.arange(0, REPEAT)[:, None, None] * ROWS + vector // vectors
    k = (vector % vectors) * VECTOR + tl.arange(0, VECTOR)[None, None, :]
    rows, columns = tl.minimum(outer - first, REPEAT * ROWS), tl.minimum(inner - column, BLOCK)
    mask = (o < rows.to(tl.int32)) & (k < columns.to(tl.int32))
    return (first * channels + c) * inner + column, o * (channels * inner) + k, mask


@triton.jit
def row_tile(step, i, vector, in_row, outer, vectors, ROWS: tl.constexpr, VECTOR: tl.constexpr):
    """Row ``i`` of step ``step``: the vectors of these indices, as far as they are ``in_row``."""
    row = step.to(tl.int64) * ROWS + i
    offsets = vector[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    mask = (in_row & (row < outer))[:, None]
    return row * vectors * VECTOR, tl.multiple_of(offsets, (1, VECTOR)), mask


@triton.jit
def read_rows(
    ptr, step, vector, in_row, outer, vectors,
    ROWS: tl.constexpr, VECTOR: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """All rows of a step, with all loads issued before the first is used."""
    tiles = ()
    # Always true. The compiler does not know it, and so does not sink loads to their first use, as
    # it does for 16-bit types.
    is_step = (step + tl.zeros(vector.shape, tl.int32) >= 0)[:, None]
    KNOWN: tl.constexpr = EVEN and ptr.dtype.element_ty.primitive_bitwidth > 16
    for i in tl.static_range(ROWS):
        start, offsets, mask = row_tile(step, i, vector, in_row, outer, vectors, ROWS, VECTOR)
        mask = is_step if EVEN else mask & is_step
        tiles += (read(ptr + start + offsets, mask, KNOWN),)
    return tiles


@triton.jit
def block_columns(block, columns, COLUMNS: tl.constexpr, VECTOR: tl.constexpr):
    """The columns of a block, and which of them are in the row."""
    k = block * COLUMNS + tl.arange(0, COLUMNS)
    # Fewer columns to a thread leave registers for their parameters and accumulators.
    return tl.max_contiguous(k, VECTOR), k < columns


@triton.jit
def column_channels(k, period, inner, VECTOR: tl.constexpr, ALIGNED: tl.constexpr):
    """The channels of columns; ALIGNED: inner is 1, and VECTOR of them are contiguous too."""
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
    """How many elements follow ``start``, up to the reach of a tile."""
    # A multiple of 16, as sizes often are: masks are then constant over a vector.
    return tl.minimum(total - start, 2**31 - 16).to(tl.int32)


@triton.jit
def read(pointers, mask, EVEN: tl.constexpr):
    """A load, with zeros outside of the tensor; EVEN: no tile reaches beyond it."""
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
    """Tile ``i`` of a step; zeros where there is no such step, for prefetches past the last."""
    start, offsets, mask = column_tile(step, i, total, columns, k, in_row, REPEAT, ROWS)
    step += tl.zeros(k.shape, tl.int32)
    is_step = ((step >= 0) & (step < steps))[None, :]
    return tl.load(ptr + start + offsets, mask=is_step if EVEN else mask & is_step, other=0)


@triton.jit
def read_tiles(
    ptr, step, steps, total, columns, k, in_row,
    REPEAT: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """All tiles of a step, with all loads issued before the first is used."""
    tiles = ()
    for i in tl.static_range(REPEAT):
        tiles += (_read_tile(ptr, step, i, steps, total, columns, k, in_row, REPEAT, ROWS, EVEN),)
    return tiles
