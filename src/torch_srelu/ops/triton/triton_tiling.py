"""Grids and block sizes of the Triton kernels, by fixed rules from shape, dtype and layout.

The rules were measured on one H200 (docs/speed.md); there is no autotuning at run time. Access
patterns are explained in `triton_memory`.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch

from ..layout import ChannelView

SHORT_RUN = 32  # shorter runs are columns
LONG_RUN = 1024  # from here on, columns and rows would often leave many partial sums
MAX_COLUMNS = 2**31 - 2**14  # so that 32-bit offsets reach what a block masks beyond them
NARROW_WIDTH = 64  # columns of a block that leave few partial sums
MAX_SUMS_SHARE = 1 / 16  # partial sums of wide blocks, as a part of the elements of the tensor
MAX_SUMS_SHARE_OF_RUNS = 1 / 64  # the same where runs, with next to none, could be taken instead
MAX_SUMS_PER_CHANNEL = 2**14  # which one program of the second kernel adds up
MIN_ACTIVE_THREADS = 0.75  # of the threads of blocks of rows
SMALL_TENSOR = 2**22  # elements: below this, the second kernel matters most
FORWARD_ROWS, BACKWARD_ROWS = 8, 2  # in flight at once
ROWS_PROGRAMS_PER_SM = 9  # resident programs of the backward rows kernel, by their registers
MIN_OCCUPANCY = 0.5  # that saturates memory bandwidth, if each thread reads 16 bytes at once
MAX_GRID_Y = 2**16 - 1  # CUDA's limit
NUM_SMS = 132  # of the GPU that the rules below were measured on


class BlockShape(NamedTuple):
    """The block size of a kernel, and limits on its grid and registers."""

    tile: int  # elements of one step of a program
    width: int  # contiguous elements of a tile, at most
    num_warps: int
    vector: int  # contiguous elements of one load of a thread, at most
    max_programs: int | None = None  # each loops over its steps; None: one program for every step
    maxnreg: int | None = None  # registers of a thread


def forward_columns_block(dtype: torch.dtype) -> BlockShape:
    """The block of the forward pass for columns."""
    vector = 8 // dtype.itemsize
    width = 32 * 4 * vector
    rows = 8 if dtype.itemsize == 2 else 4  # in flight at once; their columns' parameters cost more
    return BlockShape(rows * width, width, 4, vector)


def backward_columns_block(
    view: ChannelView, dtype: torch.dtype, tensors: int, norm: bool
) -> BlockShape:
    """The block of the backward pass for columns.

    Args:
        view: Of the input.
        dtype: Of the input.
        tensors: How many tensors of the input's size are read.
        norm: Whether a batch normalisation is fused.
    """
    tile = 32 * 4 * 4 * max(1, 8 // dtype.itemsize)
    # Five programs are resident on an SM; one more would need a second wave. Fewer where more is
    # prefetched; a norm takes as many registers as a tensor.
    per_sm, maxnreg = {2: (5, 96), 3: (4, 128)}.get(tensors + norm, (3, 168))
    programs = math.prod(view) // (8 * tile)  # a partial sum for eight steps is cheap
    programs = min(per_sm * NUM_SMS, max(NUM_SMS, programs))
    # One row of threads needs no reduction across threads, but has more sums to write. With an
    # inner size, a program has few rows to amortise its prologue and epilogue.
    width = 32 * 4 * 4 if dtype.itemsize == 2 or view.inner > 1 else NARROW_WIDTH
    return BlockShape(tile, width, 4, vector=4, max_programs=programs, maxnreg=maxnreg)


def backward_runs_block(view: ChannelView, dtype: torch.dtype) -> BlockShape:
    """The block of the backward pass for runs."""
    vector, num_warps = 16 // dtype.itemsize, 4
    width = 32 * num_warps * vector
    if math.prod(view) >= SMALL_TENSOR:
        return BlockShape(2 * width, width, num_warps, vector, max_programs=64 * NUM_SMS)
    single_split = view.channels >= NUM_SMS // 2 and math.prod(view) < SMALL_TENSOR // 2
    programs = view.channels if single_split else 8 * NUM_SMS
    return BlockShape(2 * width, width, num_warps, vector, programs)


def is_runs(view: ChannelView) -> bool:
    """Whether a channel's values are contiguous, in runs that a program can read in vectors."""
    _, channels, inner = view
    # Partial sums of columns take the memory of a row: that must not be much of the tensor.
    return channels == 1 or inner >= LONG_RUN or (inner >= SHORT_RUN and inner % 16 == 0)


def vector_size(view: ChannelView, dtype: torch.dtype) -> int:
    """How many contiguous elements of one channel a thread can load at once: up to 16 bytes."""
    widest = 16 // dtype.itemsize
    return widest if view.channels == 1 else math.gcd(view.inner, widest)


class Tiling(NamedTuple):
    """How the programs of a kernel divide a tensor: access pattern, grid and block sizes."""

    pattern: Literal["runs", "spans", "rows", "columns"]  # of `triton_memory`
    groups: int  # channels, or blocks of vectors or columns: programs of one share parameters
    steps: int  # tiles of one group
    splits: int  # programs of one group
    partial_sums: int  # of each kind
    adjacent_sums: int  # contiguous partial sums that belong to one channel
    sizes: tuple[int, ...]  # arguments of the kernel
    meta: dict[str, int]  # constexpr arguments, in the order of the kernel's signature, and options


def forward_tiling(view: ChannelView, dtype: torch.dtype) -> Tiling:
    """The tiling of the forward pass."""
    _, channels, inner = view
    total, vector = math.prod(view), vector_size(view, dtype)
    wide = vector * dtype.itemsize == 16 and (channels == 1 or inner >= SHORT_RUN)
    if not wide and inner >= LONG_RUN:
        return spans_tiling(view, dtype)
    if not wide and channels * inner < MAX_COLUMNS:
        rows = vector >= 4 and inner >= SHORT_RUN
        tiling = rows_tiling(view, dtype, FORWARD_ROWS) if rows else None
        return tiling or columns_tiling(view, forward_columns_block(dtype))
    vectors = cdiv(total, vector)
    block = min(4096 // dtype.itemsize // vector, next_power_of_2(vectors))  # 32 bytes to a thread
    sizes = (total, vectors, cdiv(inner, vector), channels)
    even = total % (block * vector) == 0
    meta = {"VECTORS": block, "VECTOR": vector, "EVEN": even, "num_warps": 4}
    return Tiling("runs", cdiv(vectors, block), 1, 1, 0, 0, sizes, meta)


def backward_tiling(view: ChannelView, dtype: torch.dtype, tensors: int, norm: bool) -> Tiling:
    """The tiling of the backward pass; arguments are those of `backward_columns_block`."""
    limit, idle = max_partial_sums(view), not norm and has_idle_threads(view, dtype)
    tiling = rows_tiling(view, dtype, BACKWARD_ROWS) if idle else None
    if tiling:
        splits = min(_splits_of_full_waves(tiling, dtype), limit // tiling.partial_sums)
        if splits > 0:
            return tiling._replace(splits=splits, partial_sums=splits * tiling.partial_sums)
    runs, wide = is_runs(view), view.channels == 1 or view.inner % 16 == 0
    if not (runs and wide) and view.channels * view.inner < MAX_COLUMNS:
        shape = backward_columns_block(view, dtype, tensors, norm)
        tiling = columns_tiling(view, shape)
        if tiling.partial_sums > limit:  # many rows are one, as for odd channels
            narrow = columns_tiling(view, shape._replace(width=NARROW_WIDTH))
            tiling = min(tiling, narrow, key=lambda candidate: candidate.partial_sums)
        if not runs or tiling.partial_sums <= limit:
            return tiling
    return runs_tiling(view, backward_runs_block(view, dtype), backward=True)


def max_partial_sums(view: ChannelView) -> int:
    """How many partial sums of one kind a backward pass may leave, if there is another tiling."""
    share = MAX_SUMS_SHARE_OF_RUNS if is_runs(view) else MAX_SUMS_SHARE
    return min(int(share * math.prod(view)), MAX_SUMS_PER_CHANNEL * view.channels)


def has_idle_threads(view: ChannelView, dtype: torch.dtype) -> bool:
    """Whether this is a large tensor of runs that can be read in vectors but do not fill blocks."""
    _, channels, inner = view
    filled = inner % min(32 * 4 * 16 // dtype.itemsize, next_power_of_2(inner)) == 0
    large = math.prod(view) >= SMALL_TENSOR // 2 and inner >= SHORT_RUN
    wide = channels > 1 and inner % 4 == 0 and channels * inner < MAX_COLUMNS
    return large and wide and not filled


def spans_tiling(view: ChannelView, dtype: torch.dtype) -> Tiling:
    """The tiling of long runs, which begin anywhere: tiles of two channels at most."""
    total = math.prod(view)
    tile = min(4096 // dtype.itemsize, next_power_of_2(view.inner + 1) // 2)  # no longer than a run
    meta = {"TILE": tile, "EVEN": total % tile == 0, "num_warps": 4}
    return Tiling("spans", cdiv(total, tile), 1, 1, 0, 0, (total, view.inner, view.channels), meta)


def rows_tiling(view: ChannelView, dtype: torch.dtype, max_rows: int) -> Tiling | None:
    """The tiling of runs that can be read in vectors, ``max_rows`` rows at once.

    None where too many threads would be idle.
    """
    outer, channels, inner = view
    vector, block = vector_size(view, dtype), 32 * 4
    rows, per_run = min(max_rows, next_power_of_2(outer)), inner // vector
    vectors = channels * per_run
    groups, steps = cdiv(vectors, block), cdiv(outer, rows)
    if vectors < MIN_ACTIVE_THREADS * groups * block:
        return None
    even = vectors % block == 0 and outer % rows == 0
    meta = {"ROWS": rows, "VECTORS": block, "VECTOR": vector, "EVEN": even, "num_warps": 4}
    return Tiling("rows", groups, steps, steps, vectors, per_run, (outer, vectors, per_run), meta)


def _splits_of_full_waves(tiling: Tiling, dtype: torch.dtype) -> int:
    """The fewest splits of a group whose last wave takes no longer than its share of the work.

    A wave is all resident programs; below MIN_OCCUPANCY of them, memory is not saturated.
    """
    busy = min(0.8, MIN_OCCUPANCY * 16 / (tiling.meta["VECTOR"] * dtype.itemsize))
    for splits in range(1, tiling.steps):
        full, rest = divmod(tiling.groups * splits / (ROWS_PROGRAMS_PER_SM * NUM_SMS), 1)
        if full + max(rest, busy if rest else 0) <= 1.05 * (full + rest):
            return splits
    return tiling.steps


def runs_tiling(view: ChannelView, shape: BlockShape, backward: bool = False) -> Tiling:
    """The tiling of runs where a program works on one channel."""
    outer, channels, inner = view
    width = min(shape.width, next_power_of_2(inner))
    vector = min(shape.vector, width)
    rows = max(1, (32 * shape.num_warps * vector if backward else shape.tile) // width)
    rows = min(rows, next_power_of_2(outer))
    repeat = max(1, min(shape.tile // (rows * width), next_power_of_2(outer) // rows))
    if repeat * rows * channels * inner >= 2**31:  # offsets inside a tile are 32-bit
        repeat = rows = 1
    segments = cdiv(inner, width)
    steps = cdiv(outer, repeat * rows) * segments
    splits = _splits(steps, channels, shape)
    even = inner % width == 0 and outer % (repeat * rows) == 0
    meta = {"ROWS": repeat * rows, "BLOCK": width}
    if backward:
        meta = {"REPEAT": repeat, "ROWS": rows, "BLOCK": width, "VECTOR": vector}
    sizes = (outer, channels, inner, segments)
    meta = {**meta, "EVEN": even, "num_warps": shape.num_warps}
    return Tiling("runs", channels, steps, splits, splits * channels, 1, sizes, meta)


def columns_tiling(view: ChannelView, shape: BlockShape, tiles: bool = True) -> Tiling:
    """The tiling of a tensor whose channel changes with every few elements.

    ``tiles``: whether a step is REPEAT tiles of ROWS rows, or one tile of all of them.
    """
    outer, channels, inner = view
    period, total = channels * inner, math.prod(view)
    # Rows that are no multiple of the width leave threads idle; several may be taken as one.
    merged = shape.width // math.gcd(period, shape.width)
    if merged > outer or merged * period > MAX_COLUMNS:
        merged = 1
    columns, merged_rows = merged * period, cdiv(outer, merged)
    width = min(shape.width, next_power_of_2(columns))
    vector = min(shape.vector, width)
    rows = min(max(1, 32 * shape.num_warps * vector // width), next_power_of_2(merged_rows))
    repeat = max(1, min(shape.tile // (rows * width), next_power_of_2(merged_rows) // rows))
    if repeat * rows * columns > MAX_COLUMNS:  # offsets inside a step are 32-bit
        repeat = rows = 1
    blocks, steps = cdiv(columns, width), cdiv(merged_rows, repeat * rows)
    splits = _splits(steps, blocks, shape)
    splits = cdiv(steps, cdiv(steps, splits))  # the fewest that take as long
    even = columns % width == 0 and total % (repeat * rows * columns) == 0
    meta = {"REPEAT": repeat, "ROWS": rows} if tiles else {"ROWS": repeat * rows}
    meta |= {"COLUMNS": width, "VECTOR": vector, "EVEN": even, "num_warps": shape.num_warps}
    if shape.maxnreg is not None and torch.version.hip is None:  # AMD's compiler has no such limit
        meta["maxnreg"] = shape.maxnreg
    sizes = (total, columns, period, inner)
    return Tiling("columns", blocks, steps, splits, splits * columns, inner, sizes, meta)


def _splits(steps: int, groups: int, shape: BlockShape) -> int:
    limit = shape.max_programs
    return steps if limit is None else max(1, min(steps, limit // groups))


def grid(tiling: Tiling) -> tuple[int, int, int]:
    """The grid of programs, as `triton_memory.program` reads it: group, then split in two axes.

    With more splits than MAX_GRID_Y there may be a few programs more than `Tiling.splits`, with
    nothing to do: in the forward pass only. The backward pass, where every program writes partial
    sums, has fewer splits.
    """
    depth = cdiv(tiling.splits, MAX_GRID_Y)
    return tiling.groups, cdiv(tiling.splits, depth), depth


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def cdiv(a: int, b: int) -> int:
    return -(-a // b)
