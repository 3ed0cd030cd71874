"""The CUDA execution, host side: how tensors are cut up, and launches that cost little host time.

The kernels are in `triton_kernels`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from . import triton_kernels as kernels
from .layout import View
from .reference import compute_dtype

SHORT_RUN = 32  # shorter runs are columns
LONG_RUN = 1024  # runs that cannot be read in wide vectors are columns up to here
SMALL = 2**22  # elements: below this, host time and the second kernel matter most
MULTIPROCESSORS = 132  # of the GPU that the rules below were measured on


class Shape(NamedTuple):
    """How a kernel cuts its work: a fixed rule, no search at run time."""

    tile: int  # elements of one step of a program
    warps: int
    vector: int  # neighbouring columns that one thread reads together, at most
    programs: int  # at most so many programs; each goes through its share step by step


def forward_shape(view: View, dtype: torch.dtype) -> Shape:
    """The cut of the forward pass, as measured on one H200."""
    if not is_runs(view):
        return Shape(4096, 4, vector=8 // dtype.itemsize, programs=64 * MULTIPROCESSORS)
    tile, warps = (2048, 4) if math.prod(view) < SMALL else (4096, 8)
    return Shape(tile, warps, vector=1, programs=1 << 30)


def backward_shape(view: View, dtype: torch.dtype) -> Shape:
    """The cut of the backward pass, as measured on one H200."""
    if not is_runs(view):
        tile, warps = (2048, 4) if dtype.itemsize < 4 else (1024, 8)
        return Shape(tile, warps, vector=2, programs=4 * MULTIPROCESSORS)
    if math.prod(view) >= SMALL:
        return Shape(1024, 4, vector=1, programs=32 * MULTIPROCESSORS)
    alone = view.channels >= MULTIPROCESSORS // 2 and math.prod(view) < SMALL // 2
    return Shape(2048, 4, vector=1, programs=view.channels if alone else 8 * MULTIPROCESSORS)


def is_runs(view: View) -> bool:
    """Whether a channel's values lie together, in pieces that a program can read well."""
    _, channels, inner = view
    # Sums of columns take memory like one row: that must not be much of the tensor.
    return channels == 1 or inner >= LONG_RUN or (inner >= SHORT_RUN and inner % 16 == 0)


class Cut(NamedTuple):
    """How the kernels divide a tensor among their programs."""

    groups: int  # channels, or blocks of columns: programs of one group share their parameters
    splits: int  # programs of one group
    sizes: tuple[int, ...]
    meta: dict[str, int]  # in the order of the kernels' signatures


def cut(view: View, shape: Shape) -> Cut:
    """The cut of a tensor, by a fixed rule."""
    outer, channels, inner = view
    columns = channels * inner
    width = min(
        shape.tile if is_runs(view) else 64, _power_of_two(inner if is_runs(view) else columns)
    )
    rows = min(shape.tile // width, _power_of_two(outer))
    if rows * columns >= 2**31:  # offsets inside a tile are 32-bit
        rows = 1
    if is_runs(view):
        segments = _ceil(inner, width)
        steps = _ceil(outer, rows) * segments
        splits = max(1, min(steps, shape.programs // channels))
        even = inner % width == 0 and outer % rows == 0
        meta = {"ROWS": rows, "BLOCK": width, "EVEN": even, "num_warps": shape.warps}
        return Cut(channels, splits, (outer, channels, inner, segments, steps, splits), meta)
    blocks, steps = _ceil(columns, width), _ceil(outer, rows)
    splits = max(1, min(steps, shape.programs // blocks))
    even = columns % width == 0 and outer % rows == 0
    meta = {"ROWS": rows, "COLUMNS": width, "VECTOR": min(shape.vector, width), "EVEN": even}
    sizes = (outer, columns, inner, blocks, steps, splits)
    return Cut(blocks, splits, sizes, {**meta, "num_warps": shape.warps})


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


class Launch:
    """A kernel with everything fixed but its tensors. Remembers the code compiled for them.

    Triton's own look-up costs more host time than a small tensor does on the GPU. What it looks at
    is the same whenever sizes, dtypes, device and the alignment of pointers are.
    """

    def __init__(self, kernel, grid: tuple[int, int, int], sizes: tuple[int, ...], meta: dict):
        self.kernel, self.grid, self.sizes, self.meta = kernel, grid, sizes, meta
        self.fixed = (*sizes, *(v for k, v in meta.items() if k != "num_warps"))
        self.runners: dict[tuple, Callable[..., None]] = {}

    def __call__(self, key: tuple, *tensors: Tensor | None) -> None:
        """``key``: device and dtypes of the tensors."""
        bits = 0
        for t in tensors:
            if t is not None:
                bits |= t.data_ptr()
        runner = self.runners.get(key) if bits % 16 == 0 else None
        if runner is not None:
            runner(*tensors, *self.fixed)
            return
        compiled = self.kernel[self.grid](*tensors, *self.sizes, **self.meta)
        if (
            bits % 16 == 0 and torch.version.hip is None and compiled is not None
        ):  # None: interpreted
            self.runners[key] = compiled[self.grid]


@functools.lru_cache(maxsize=4096)
def _forward_launch(view: View, dtype: torch.dtype) -> Launch:
    how = cut(view, forward_shape(view, dtype))
    kernel = kernels.forward_runs if is_runs(view) else kernels.forward_columns
    meta = {"COMPUTE": _compute(dtype), **how.meta}
    return Launch(kernel, (how.groups * how.splits, 1, 1), how.sizes, meta)


class Backward(NamedTuple):
    """The kernel, the shape of its sums, and the kernel that adds these up where that is needed."""

    first: Launch
    sums: tuple[int, int]
    second: Launch | None


@functools.lru_cache(maxsize=4096)
def _backward_launch(
    view: View, dtype: torch.dtype, need_input: bool, need_params: bool
) -> Backward:
    how = cut(view, backward_shape(view, dtype))
    channels, runs = view.channels, is_runs(view)
    alone = runs and how.splits == 1
    meta = {"INPUT": need_input, "PARAMS": need_params, "COMPUTE": _compute(dtype)}
    if runs:
        meta["ALONE"] = alone
    kernel = kernels.backward_runs if runs else kernels.backward_columns
    first = Launch(kernel, (how.groups * how.splits, 1, 1), how.sizes, {**meta, **how.meta})
    if alone or not need_params:
        return Backward(first, (4, channels), None)
    summed = 1 if runs else view.inner  # columns that belong to one channel
    width = min(32, _power_of_two(channels))
    parts = min(1024 // width, _power_of_two(how.splits * summed))
    meta = {"COMPUTE": _compute(dtype), "PARTS": parts, "CHANNELS": width, "num_warps": 4}
    sizes = (how.splits, channels, summed)
    second = Launch(kernels.finish, (_ceil(channels, width), 4, 1), sizes, meta)
    return Backward(first, (4, how.splits * channels * summed), second)


def forward(x: Tensor, params: Sequence[Tensor], view: View) -> Tensor:
    """SReLU of the dense tensor ``x``."""
    if _elsewhere(x):
        with torch.cuda.device(x.device):
            return forward(x, params, view)
    y = torch.empty_like(x)
    params = _packed(params)
    _forward_launch(view, x.dtype)(_key(x, params), x, y, *params)
    return y


def backward(
    grad: Tensor,
    x: Tensor,
    params: Sequence[Tensor],
    view: View,
    need_input: bool,
    need_params: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the dense ``x`` (``grad`` has its layout) and, as (4, C), of the parameters."""
    if _elsewhere(x):
        with torch.cuda.device(x.device):
            return backward(grad, x, params, view, need_input, need_params)
    params = _packed(params)
    key = _key(x, params)
    first, size, second = _backward_launch(view, x.dtype, need_input, need_params)
    grad_x = torch.empty_like(x) if need_input else None
    sums = x.new_empty(size, dtype=compute_dtype(x)) if need_params else None
    first(key, grad, x, grad_x, sums, *params)
    if second is None:
        return grad_x, sums
    grads = x.new_empty((4, view.channels), dtype=compute_dtype(x))
    second(key, sums, grads, params[1], params[3])
    return grad_x, grads


def _compute(dtype: torch.dtype) -> tl.dtype:
    return tl.float64 if dtype == torch.float64 else tl.float32


def _packed(params: Sequence[Tensor]) -> Sequence[Tensor]:
    return params if all(p.is_contiguous() for p in params) else [p.contiguous() for p in params]


def _key(x: Tensor, params: Sequence[Tensor]) -> tuple:
    t_r, a_r, t_l, a_l = params
    return (x.get_device(), t_r.dtype, a_r.dtype, t_l.dtype, a_l.dtype)


def _elsewhere(x: Tensor) -> bool:
    """Triton launches on the current device, which need not be the tensor's."""
    return x.is_cuda and x.get_device() != torch.cuda.current_device()
