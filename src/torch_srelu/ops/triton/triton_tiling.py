"""How the CUDA kernels cut tensors up: fixed rules from shape, dtype and layout.

They were measured on one H200 (docs/speed.md); there is no search at run time.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch

from ..layout import View

SHORT_RUN = 32  # shorter runs are columns
LONG_RUN = 1024  # from here on, columns and rows would often leave many sums
MOST_COLUMNS = 2**31 - 2**14  # that 32-bit numbers count, with what a block reaches beyond them
NARROW = 64  # columns of a block that leave few partial sums
MOST_SUMS = 1 / 16  # of the elements of a tensor, for which wider blocks may leave partial sums
MOST_SUMS_OF_RUNS = 1 / 64  # and where runs, with next to none, could be taken instead
MOST_PARTS = 2**14  # partial sums of a channel: one program of the second kernel adds them
FULL_LANES = 0.75  # of the threads that go down rows, at least
SMALL = 2**22  # elements: below this, the second kernel matters most
FORWARD_ROWS, BACKWARD_ROWS = 8, 2  # read at once
ROWS_FIT = 9  # programs of rows on a multiprocessor, by their registers
BUSY = 0.5  # of all that fit: so many keep the memory busy, if each thread reads 16 bytes at once
MOST_IN_LAYER = 2**16 - 1  # programs of a grid along its second axis; CUDA's limit
MULTIPROCESSORS = 132  # of the GPU that the rules below were measured on


class Shape(NamedTuple):
    """How a kernel cuts its work."""

    tile: int  # elements of one step of a program
    width: int  # of which so many, at most, are neighbours in memory
    warps: int
    vector: int  # neighbours that one thread reads together, at most
    programs: int | None = None  # at most, each going through its steps; None: one for every step
    registers: int | None = None  # of a thread, at most


def forward_columns(dtype: torch.dtype) -> Shape:
    """How the forward pass cuts columns."""
    vector = 8 // dtype.itemsize
    width = 32 * 4 * vector
    rows = 8 if dtype.itemsize == 2 else 4  # read at once; their columns' parameters cost more
    return Shape(rows * width, width, 4, vector)


def backward_columns(view: View, dtype: torch.dtype, tensors: int, norm: bool) -> Shape:
    """How the backward pass cuts columns, with so many tensors to read, and perhaps a norm."""
    tile = 32 * 4 * 4 * max(1, 8 // dtype.itemsize)
    # Five fit on a multiprocessor; of one program more, all would wait for a second turn. With
    # more to read ahead fewer; a norm takes as many registers as a tensor.
    fit, registers = {2: (5, 96), 3: (4, 128)}.get(tensors + norm, (3, 168))
    programs = math.prod(view) // (8 * tile)  # a partial sum for eight steps is cheap
    programs = min(fit * MULTIPROCESSORS, max(MULTIPROCESSORS, programs))
    # One row of threads has nothing to add up among them, and more sums to write. Where channels
    # have neighbours, a program has few rows for what it does before and after.
    width = 32 * 4 * 4 if dtype.itemsize == 2 or view.inner > 1 else NARROW
    return Shape(tile, width, warps=4, vector=4, programs=programs, registers=registers)


def backward_runs(view: View, dtype: torch.dtype) -> Shape:
    """How the backward pass cuts runs."""
    vector, warps = 16 // dtype.itemsize, 4
    width = 32 * warps * vector
    if math.prod(view) >= SMALL:
        return Shape(2 * width, width, warps, vector, programs=64 * MULTIPROCESSORS)
    alone = view.channels >= MULTIPROCESSORS // 2 and math.prod(view) < SMALL // 2
    programs = view.channels if alone else 8 * MULTIPROCESSORS
    return Shape(2 * width, width, warps, vector, programs)


def is_runs(view: View) -> bool:
    """Whether a channel's values lie together, in pieces that a program can read well."""
    _, channels, inner = view
    # Sums of columns take memory like one row: that must not be much of the tensor.
    return channels == 1 or inner >= LONG_RUN or (inner >= SHORT_RUN and inner % 16 == 0)


def run_vector(view: View, dtype: torch.dtype) -> int:
    """How many neighbours of one channel a thread can read together: up to 16 bytes."""
    wide = 16 // dtype.itemsize
    return wide if view.channels == 1 else math.gcd(view.inner, wide)


class Cut(NamedTuple):
    """How the kernels divide a tensor among their programs."""

    way: Literal["runs", "spans", "rows", "columns"]  # of `triton_tiles`
    groups: int  # channels, or blocks of lanes or columns: programs of one share their parameters
    steps: int  # of one group
    splits: int  # programs of one group
    sums: int  # partial sums that a plane holds
    beside: int  # of these, neighbours that belong to one channel
    sizes: tuple[int, ...]
    meta: dict[str, int]  # in the order of the kernels' signatures


def cut_forward(view: View, dtype: torch.dtype) -> Cut:
    """The cut of the forward pass."""
    _, channels, inner = view
    total, vector = math.prod(view), run_vector(view, dtype)
    wide = vector * dtype.itemsize == 16 and (channels == 1 or inner >= SHORT_RUN)
    if not wide and inner >= LONG_RUN:
        return cut_spans(view, dtype)
    if not wide and channels * inner < MOST_COLUMNS:
        how = cut_rows(view, dtype, FORWARD_ROWS) if vector >= 4 and inner >= SHORT_RUN else None
        return how or cut_columns(view, forward_columns(dtype))
    lanes = ceil(total, vector)
    at_once = min(4096 // dtype.itemsize // vector, power_of_two(lanes))  # 32 bytes to a thread
    steps, even = ceil(lanes, at_once), total % (at_once * vector) == 0
    sizes = (total, lanes, ceil(inner, vector), channels)
    meta = {"LANES": at_once, "VECTOR": vector, "EVEN": even, "num_warps": 4}
    return Cut("runs", steps, 1, 1, 0, 0, sizes, meta)


def cut_backward(view: View, dtype: torch.dtype, tensors: int, norm: bool) -> Cut:
    """The cut of the backward pass, by shape, dtype, layout and what there is to read."""
    most, idle = most_sums(view), not norm and has_idle_lanes(view, dtype)
    how = cut_rows(view, dtype, BACKWARD_ROWS) if idle else None
    if how:
        splits = min(_few_waves(how, dtype), most // how.sums)
        if splits > 0:
            return how._replace(splits=splits, sums=splits * how.sums)
    runs, wide = is_runs(view), view.channels == 1 or view.inner % 16 == 0
    if not (runs and wide) and view.channels * view.inner < MOST_COLUMNS:
        shape = backward_columns(view, dtype, tensors, norm)
        how = cut_columns(view, shape)
        if how.sums > most:  # many rows are one, as for odd channels
            narrow = cut_columns(view, shape._replace(width=NARROW))
            how = min(how, narrow, key=lambda cut: cut.sums)
        if not runs or how.sums <= most:
            return how
    return cut_runs(view, backward_runs(view, dtype), backward=True)


def most_sums(view: View) -> int:
    """How many partial sums of one kind a backward pass may leave, if it can be cut otherwise."""
    share = MOST_SUMS_OF_RUNS if is_runs(view) else MOST_SUMS
    return min(int(share * math.prod(view)), MOST_PARTS * view.channels)


def has_idle_lanes(view: View, dtype: torch.dtype) -> bool:
    """Whether this is a large tensor of runs that can be read well but do not fill programs."""
    _, channels, inner = view
    filled = inner % min(32 * 4 * 16 // dtype.itemsize, power_of_two(inner)) == 0
    large = math.prod(view) >= SMALL // 2 and inner >= SHORT_RUN
    wide = channels > 1 and inner % 4 == 0 and channels * inner < MOST_COLUMNS
    return large and wide and not filled


def cut_spans(view: View, dtype: torch.dtype) -> Cut:
    """The cut of a tensor of long runs, which begin anywhere: tiles of two channels at most."""
    total = math.prod(view)
    tile = min(4096 // dtype.itemsize, power_of_two(view.inner + 1) // 2)  # no longer than a run
    meta = {"TILE": tile, "EVEN": total % tile == 0, "num_warps": 4}
    return Cut("spans", ceil(total, tile), 1, 1, 0, 0, (total, view.inner, view.channels), meta)


def cut_rows(view: View, dtype: torch.dtype, most: int) -> Cut | None:
    """The cut of a tensor whose runs can be read in vectors, ``most`` rows at once.

    None where these are too few for the threads of a program.
    """
    outer, channels, inner = view
    vector, block = run_vector(view, dtype), 32 * 4
    rows, per_run = min(most, power_of_two(outer)), inner // vector
    lanes = channels * per_run
    groups, steps = ceil(lanes, block), ceil(outer, rows)
    if lanes < FULL_LANES * groups * block:
        return None
    even = lanes % block == 0 and outer % rows == 0
    meta = {"ROWS": rows, "LANES": block, "VECTOR": vector, "EVEN": even, "num_warps": 4}
    return Cut("rows", groups, steps, steps, lanes, per_run, (outer, lanes, per_run), meta)


def _few_waves(how: Cut, dtype: torch.dtype) -> int:
    """The fewest programs of a group whose last wave is as long as its part of the work.

    A wave is all that fit; with less than BUSY of that, memory waits for programs.
    """
    busy = min(0.8, BUSY * 16 / (how.meta["VECTOR"] * dtype.itemsize))
    for splits in range(1, how.steps):
        full, rest = divmod(how.groups * splits / (ROWS_FIT * MULTIPROCESSORS), 1)
        if full + max(rest, busy if rest else 0) <= 1.05 * (full + rest):
            return splits
    return how.steps


def cut_runs(view: View, shape: Shape, backward: bool = False) -> Cut:
    """The cut of a tensor whose channels are runs, where a program sees one channel."""
    outer, channels, inner = view
    width = min(shape.width, power_of_two(inner))
    vector = min(shape.vector, width)
    rows = max(1, (32 * shape.warps * vector if backward else shape.tile) // width)
    rows = min(rows, power_of_two(outer))
    repeat = max(1, min(shape.tile // (rows * width), power_of_two(outer) // rows))
    if repeat * rows * channels * inner >= 2**31:  # offsets inside a tile are 32-bit
        repeat = rows = 1
    segments = ceil(inner, width)
    steps = ceil(outer, repeat * rows) * segments
    splits = _splits(steps, channels, shape)
    even = inner % width == 0 and outer % (repeat * rows) == 0
    lanes = {"REPEAT": repeat, "ROWS": rows, "BLOCK": width, "VECTOR": vector}
    meta = lanes if backward else {"ROWS": repeat * rows, "BLOCK": width}
    sizes = (outer, channels, inner, segments)
    meta = {**meta, "EVEN": even, "num_warps": shape.warps}
    return Cut("runs", channels, steps, splits, splits * channels, 1, sizes, meta)


def cut_columns(view: View, shape: Shape, tiles: bool = True) -> Cut:
    """The cut of a tensor whose channels change with every few elements.

    ``tiles``: whether a step is REPEAT tiles of ROWS rows, or one tile of all of them.
    """
    outer, channels, inner = view
    period, total = channels * inner, math.prod(view)
    # Rows that are no multiple of the width leave lanes idle; together, several may be one.
    together = shape.width // math.gcd(period, shape.width)
    if together > outer or together * period > MOST_COLUMNS:
        together = 1
    columns = together * period
    virtual = ceil(outer, together)  # rows
    width = min(shape.width, power_of_two(columns))
    vector = min(shape.vector, width)
    rows = min(max(1, 32 * shape.warps * vector // width), power_of_two(virtual))
    repeat = max(1, min(shape.tile // (rows * width), power_of_two(virtual) // rows))
    if repeat * rows * columns > MOST_COLUMNS:  # offsets inside of a step are 32-bit
        repeat = rows = 1
    blocks, steps = ceil(columns, width), ceil(virtual, repeat * rows)
    splits = _splits(steps, blocks, shape)
    splits = ceil(steps, ceil(steps, splits))  # as few as take as long
    even = columns % width == 0 and total % (repeat * rows * columns) == 0
    meta = {"REPEAT": repeat, "ROWS": rows} if tiles else {"ROWS": repeat * rows}
    meta |= {"COLUMNS": width, "VECTOR": vector, "EVEN": even, "num_warps": shape.warps}
    if (
        shape.registers is not None and torch.version.hip is None
    ):  # AMD's compiler has no such limit
        meta["maxnreg"] = shape.registers
    sizes = (total, columns, period, inner)
    return Cut("columns", blocks, steps, splits, splits * columns, inner, sizes, meta)


def _splits(steps: int, groups: int, shape: Shape) -> int:
    return steps if shape.programs is None else max(1, min(steps, shape.programs // groups))


def grid(how: Cut) -> tuple[int, int, int]:
    """The grid of programs, as `triton_tiles.program` reads it.

    Where a group has very many, there may be a few more than `Cut.splits`, with nothing to do: in
    the forward pass only. In the backward pass, where all of them write sums, they are few.
    """
    layers = ceil(how.splits, MOST_IN_LAYER)
    return how.groups, ceil(how.splits, layers), layers


def power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def ceil(a: int, b: int) -> int:
    return -(-a // b)
