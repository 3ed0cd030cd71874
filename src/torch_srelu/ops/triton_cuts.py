"""How the CUDA kernels cut tensors up: fixed rules from shape, dtype and layout.

They were measured on one H200 (docs/speed.md); there is no search at run time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from .layout import View

SHORT_RUN = 32  # shorter runs are columns
LONG_RUN = 1024  # runs that cannot be read in wide vectors are columns up to here
NARROW = 64  # columns of a block that leave few partial sums
MOST_SUMS = 1 / 16  # of the elements of a tensor, for which wider blocks may leave partial sums
SMALL = 2**22  # elements: below this, host time and the second kernel matter most
MULTIPROCESSORS = 132  # of the GPU that the rules below were measured on


class Shape(NamedTuple):
    """How a kernel cuts its work."""

    tile: int  # elements of one step of a program
    width: int  # of which so many, at most, are neighbours in memory
    warps: int
    vector: int  # neighbours that one thread reads together, at most
    programs: int  # at most so many programs; each goes through its share step by step
    registers: int | None = None  # of a thread, at most


def forward_shape(view: View, dtype: torch.dtype) -> Shape:
    """The cut of the forward pass, by shape, dtype and layout."""
    if not is_runs(view):
        vector = 8 // dtype.itemsize
        width = 32 * 4 * vector
        rows = 8 if dtype.itemsize == 2 else 4  # read at once; their columns' parameters cost more
        return Shape(rows * width, width, 4, vector, programs=1 << 30)
    # With more than 32 bytes to a thread, the last would be asked for when the first are there.
    tile, warps = (4096 // dtype.itemsize, 4) if math.prod(view) < SMALL else (4096, 8)
    return Shape(tile, tile, warps, vector=1, programs=1 << 30)


def backward_shape(view: View, dtype: torch.dtype, tensors: int = 2, norm: bool = False) -> Shape:
    """The cut of the backward pass: shape, dtype, layout, tensors to read, `joined.Norm` or not."""
    if not is_runs(view):
        tile = 32 * 4 * 4 * max(1, 8 // dtype.itemsize)
        # Five fit on a multiprocessor; of one program more, all would wait for a second turn. With
        # more to read ahead fewer; a norm takes as many registers as a tensor.
        fit, registers = {2: (5, 96), 3: (4, 128)}.get(tensors + norm, (3, 168))
        programs = math.prod(view) // (8 * tile)  # a partial sum for eight steps is cheap
        programs = min(fit * MULTIPROCESSORS, max(MULTIPROCESSORS, programs))
        # One row of threads has nothing to add up among them, and more sums to write.
        width = 32 * 4 * 4 if dtype.itemsize == 2 else NARROW
        return Shape(tile, width, warps=4, vector=4, programs=programs, registers=registers)
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


class Cut(NamedTuple):
    """How the kernels divide a tensor among their programs."""

    groups: int  # channels, or blocks of columns: programs of one group share their parameters
    splits: int  # programs of one group
    sums: int  # partial sums that a plane holds, (splits, columns) of them
    sizes: tuple[int, ...]
    meta: dict[str, int]  # in the order of the kernels' signatures


def cut_backward(view: View, dtype: torch.dtype, tensors: int, norm: bool) -> Cut:
    """The cut of the backward pass by `backward_shape`."""
    shape = backward_shape(view, dtype, tensors, norm)
    if is_runs(view):
        return cut_runs(view, shape, backward=True)
    how = cut_columns(view, shape)
    if how.sums > MOST_SUMS * math.prod(view):  # many rows are one, as for odd channels
        return cut_columns(view, shape._replace(width=NARROW))
    return how


def cut_runs(view: View, shape: Shape, backward: bool = False) -> Cut:
    """The cut of a tensor whose channels are runs."""
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
    splits = max(1, min(steps, shape.programs // channels))
    even = inner % width == 0 and outer % (repeat * rows) == 0
    lanes = {"REPEAT": repeat, "ROWS": rows, "BLOCK": width, "VECTOR": vector}
    meta = lanes if backward else {"ROWS": repeat * rows, "BLOCK": width}
    sizes = (outer, channels, inner, segments, steps, splits)
    meta = {**meta, "EVEN": even, "num_warps": shape.warps}
    return Cut(channels, splits, splits * channels, sizes, meta)


def cut_columns(view: View, shape: Shape, tiles: bool = True) -> Cut:
    """The cut of a tensor whose channels change with every few elements.

    ``tiles``: whether a step is REPEAT tiles of ROWS rows, or one tile of all of them.
    """
    outer, channels, inner = view
    period, total = channels * inner, math.prod(view)
    # Rows that are no multiple of the width leave lanes idle; together, several may be one.
    together = shape.width // math.gcd(period, shape.width)
    if together > outer or together * period >= 2**31:
        together = 1
    columns = together * period
    virtual = ceil(outer, together)  # rows
    width = min(shape.width, power_of_two(columns))
    vector = min(shape.vector, width)
    rows = min(max(1, 32 * shape.warps * vector // width), power_of_two(virtual))
    repeat = max(1, min(shape.tile // (rows * width), power_of_two(virtual) // rows))
    if repeat * rows * columns >= 2**31:  # offsets inside of a step are 32-bit
        repeat = rows = 1
    blocks, steps = ceil(columns, width), ceil(virtual, repeat * rows)
    splits = max(1, min(steps, shape.programs // blocks))
    splits = ceil(steps, ceil(steps, splits))  # as few as take as long
    even = columns % width == 0 and total % (repeat * rows * columns) == 0
    meta = {"REPEAT": repeat, "ROWS": rows} if tiles else {"ROWS": repeat * rows}
    meta |= {"COLUMNS": width, "VECTOR": vector, "EVEN": even, "num_warps": shape.warps}
    if (
        shape.registers is not None and torch.version.hip is None
    ):  # AMD's compiler has no such limit
        meta["maxnreg"] = shape.registers
    sizes = (total, columns, period, inner, blocks, steps, splits)
    return Cut(blocks, splits, splits * columns, sizes, meta)


def power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def ceil(a: int, b: int) -> int:
    return -(-a // b)
