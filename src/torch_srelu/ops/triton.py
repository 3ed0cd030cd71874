"""The CUDA execution, host side: how tensors are cut up, and launches that cost little host time.

The kernels are in `triton_kernels`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from . import triton_kernels as kernels
from .alike import Guard, guard, plain
from .layout import View
from .reference import compute_dtype

ADDS_BIAS = True  # its kernels compute SReLU of x + bias
REMEMBERS = True  # it can remember calls (`Call`)

SHORT_RUN = 32  # shorter runs are columns
LONG_RUN = 1024  # runs that cannot be read in wide vectors are columns up to here
SMALL = 2**22  # elements: below this, host time and the second kernel matter most
OPTIONS = ("num_warps", "maxnreg")  # of the compiler; all else of a `Cut.meta` goes to the kernel
NO_OUT = (None,) * len(kernels.OUT)
MULTIPROCESSORS = 132  # of the GPU that the rules below were measured on


class Shape(NamedTuple):
    """How a kernel cuts its work: a fixed rule, no search at run time."""

    tile: int  # elements of one step of a program
    width: int  # of which so many, at most, are neighbours in memory
    warps: int
    vector: int  # neighbours that one thread reads together, at most
    programs: int  # at most so many programs; each goes through its share step by step
    registers: int | None = None  # of a thread, at most


def forward_shape(view: View, dtype: torch.dtype) -> Shape:
    """The cut of the forward pass, as measured on one H200."""
    if not is_runs(view):
        vector = 8 // dtype.itemsize
        width = 32 * 4 * vector
        return Shape(8 * width, width, 4, vector, programs=128 * MULTIPROCESSORS)
    tile, warps = (2048, 4) if math.prod(view) < SMALL else (4096, 8)
    return Shape(tile, tile, warps, vector=1, programs=1 << 30)


def backward_shape(view: View, dtype: torch.dtype) -> Shape:
    """The cut of the backward pass, as measured on one H200."""
    if not is_runs(view):
        tile = 32 * 4 * 4 * max(1, 8 // dtype.itemsize)
        # Five fit on a multiprocessor; of one program more, all would wait for a second turn.
        programs = math.prod(view) // (8 * tile)  # a partial sum for eight steps is cheap
        programs = min(5 * MULTIPROCESSORS, max(MULTIPROCESSORS, programs))
        return Shape(tile, 64, warps=4, vector=4, programs=programs, registers=96)
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


def cut_runs(view: View, shape: Shape, backward: bool = False) -> Cut:
    """The cut of a tensor whose channels are runs."""
    outer, channels, inner = view
    width = min(shape.width, _power_of_two(inner))
    vector = min(shape.vector, width)
    rows = max(1, (32 * shape.warps * vector if backward else shape.tile) // width)
    rows = min(rows, _power_of_two(outer))
    repeat = max(1, min(shape.tile // (rows * width), _power_of_two(outer) // rows))
    if repeat * rows * channels * inner >= 2**31:  # offsets inside a tile are 32-bit
        repeat = rows = 1
    segments = _ceil(inner, width)
    steps = _ceil(outer, repeat * rows) * segments
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
    virtual = _ceil(outer, together)  # rows
    width = min(shape.width, _power_of_two(columns))
    vector = min(shape.vector, width)
    rows = min(max(1, 32 * shape.warps * vector // width), _power_of_two(virtual))
    repeat = max(1, min(shape.tile // (rows * width), _power_of_two(virtual) // rows))
    if repeat * rows * columns >= 2**31:  # offsets inside of a step are 32-bit
        repeat = rows = 1
    blocks, steps = _ceil(columns, width), _ceil(virtual, repeat * rows)
    splits = max(1, min(steps, shape.programs // blocks))
    splits = _ceil(steps, _ceil(steps, splits))  # as few as take as long
    even = columns % width == 0 and total % (repeat * rows * columns) == 0
    meta = {"REPEAT": repeat, "ROWS": rows} if tiles else {"ROWS": repeat * rows}
    meta |= {"COLUMNS": width, "VECTOR": vector, "EVEN": even, "num_warps": shape.warps}
    if (
        shape.registers is not None and torch.version.hip is None
    ):  # AMD's compiler has no such limit
        meta["maxnreg"] = shape.registers
    sizes = (total, columns, period, inner, blocks, steps, splits)
    return Cut(blocks, splits, splits * columns, sizes, meta)


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
        self.fixed = (*sizes, *(v for k, v in meta.items() if k not in OPTIONS))
        self.compiled: dict[tuple, tuple] = {}

    def __call__(
        self, key: tuple, *tensors: Tensor | None, out: Sequence[Tensor | None] = ()
    ) -> None:
        """``key``: device and dtypes of the tensors. ``out``: more of them, aligned or not."""
        pointers, bits = [t if t is None else t.data_ptr() for t in tensors], 0
        for pointer in pointers:
            if pointer:
                bits |= pointer
        compiled = self.compiled.get(key) if bits & 15 == 0 else None
        if compiled is not None:
            # What compiled[grid] does, less the looking up. Numbers, not tensors: of a tensor,
            # Triton would ask the driver where it lives.
            run, function, metadata = compiled
            stream = torch._C._cuda_getCurrentRawStream(key[0])
            hooks = (None, None, None)
            pointers += [t if t is None else t.data_ptr() for t in out]
            run(*self.grid, stream, function, metadata, *hooks, *pointers, *self.fixed)
            return
        made = self.kernel[self.grid](*tensors, *out, *self.sizes, **self.meta)
        if bits & 15 == 0 and torch.version.hip is None and made is not None:  # None: interpreted
            self.compiled[key] = (made.run, made.function, made.packed_metadata)


@functools.lru_cache(maxsize=4096)
def _forward_launch(view: View, dtype: torch.dtype) -> Launch:
    runs = is_runs(view)
    how = (cut_runs if runs else cut_columns)(view, forward_shape(view, dtype))
    kernel = kernels.forward_runs if runs else kernels.forward_columns
    meta = {"COMPUTE": _compute(dtype), **how.meta}
    return Launch(kernel, (how.groups * how.splits, 1, 1), how.sizes, meta)


class Backward(NamedTuple):
    """The kernel, and where it cannot finish the job the shape of its sums and a second kernel."""

    first: Launch
    out: int  # how many gradients of parameters the first could write itself
    sums: tuple[int, int]
    second: Launch | None

    def __call__(
        self,
        key: tuple,
        grad: Tensor,
        x: Tensor,
        params: Sequence[Tensor],
        bias: Tensor | None,
        need_input: bool,
        out: Sequence[Tensor | None],
    ) -> Tensor | None:
        """The gradient of ``x``; those of the parameters and the bias go to ``out``."""
        grad_x = torch.empty_like(x) if need_input else None
        if self.second is None:
            self.first(key, grad, x, grad_x, None, *params, bias, out=out[: self.out])
            return grad_x
        sums = x.new_empty(self.sums, dtype=compute_dtype(x))
        self.first(key, grad, x, grad_x, sums, *params, bias, out=NO_OUT[: self.out])
        self.second(key, sums, params[1], params[3], out=out)
        return grad_x


@functools.lru_cache(maxsize=4096)
def _backward_launch(
    view: View, dtype: torch.dtype, need_input: bool, need_params: bool, need_bias: bool
) -> Backward:
    channels, runs = view.channels, is_runs(view)
    shape = backward_shape(view, dtype)
    how = cut_runs(view, shape, backward=True) if runs else cut_columns(view, shape)
    alone = runs and how.splits == 1
    compute = _compute(dtype)
    meta = {"INPUT": need_input, "PARAMS": need_params, "BIAS": need_bias, "COMPUTE": compute}
    if runs:
        meta["ALONE"] = alone
    kernel = kernels.backward_runs if runs else kernels.backward_columns
    first = Launch(kernel, (how.groups * how.splits, 1, 1), how.sizes, {**meta, **how.meta})
    planes, out = 4 * need_params + need_bias, len(NO_OUT) if runs else 0
    if alone or not planes:
        return Backward(first, out, (0, 0), None)
    summed = 1 if runs else view.inner  # columns that belong to one channel
    splits = how.sums // (channels * summed)
    # Few channels and many parts to a program: all of them are under way at once.
    width = min(8, _power_of_two(channels))
    parts = min(2048, _power_of_two(splits * summed))
    meta = {"PARAMS": need_params, "BIAS": need_bias, "COMPUTE": compute}
    meta |= {"PARTS": parts, "CHANNELS": width, "num_warps": 8 if parts > 512 else 4}
    sizes = (splits, channels, summed)
    grid = (_ceil(channels, width), planes, 1)
    second = Launch(kernels.finish, grid, sizes, meta)
    return Backward(first, out, (planes, how.sums), second)


def forward(x: Tensor, params: Sequence[Tensor], view: View, bias: Tensor | None = None) -> Tensor:
    """SReLU of the dense tensor ``x``, or of ``x + bias``."""
    if _elsewhere(x):
        with torch.cuda.device(x.device):
            return forward(x, params, view, bias)
    y = torch.empty_like(x)
    params, bias = _packed(params, bias)
    _forward_launch(view, x.dtype)(_key(x, params, bias), x, y, *params, bias)
    return y


def backward(
    grad: Tensor,
    x: Tensor,
    params: Sequence[Tensor],
    view: View,
    need_input: bool,
    need_params: bool,
    bias: Tensor | None = None,
    need_bias: bool = False,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the dense ``x`` (``grad`` has its layout) and of what belongs to channels.

    These are rows of one tensor, as far as they are needed: the four parameters, then the bias.
    """
    if _elsewhere(x):
        with torch.cuda.device(x.device):
            return backward(grad, x, params, view, need_input, need_params, bias, need_bias)
    params, bias = _packed(params, bias)
    launch = _backward_launch(view, x.dtype, need_input, need_params, need_bias)
    rows, out = None, NO_OUT
    if need_params or need_bias:
        rows = x.new_empty((4 * need_params + need_bias, view.channels), dtype=compute_dtype(x))
        of_params = rows[:4].unbind() if need_params else NO_OUT[:4]
        out = (*of_params, rows[-1] if need_bias else None)
    return launch(_key(x, params, bias), grad, x, params, bias, need_input, out), rows


class Call:
    """SReLU of tensors of one kind, without a bias: what shapes, strides and dtypes decide.

    Args:
        x: One of the dense tensors.
        params: Its parameters, contiguous.
        view: Of ``x``.
    """

    def __init__(self, x: Tensor, params: Sequence[Tensor], view: View) -> None:
        self._view, self._key = view, _key(x, params, None)
        self._like_x = (x.shape, x.stride(), x.dtype, x.device)
        self._like_param = (params[0].shape, (1,), compute_dtype(x), x.device)
        self._forward = _forward_launch(view, x.dtype)
        self._backward = _backward_launch(view, x.dtype, True, True, False)
        self._taken: Guard | None = None

    def forward(self, x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor) -> Tensor:
        if _elsewhere(x):
            return forward(x, (t_r, a_r, t_l, a_l), self._view)
        y = torch.empty_like(x)
        self._forward(self._key, x, y, t_r, a_r, t_l, a_l, None)
        return y

    def takes(self, *tensors: Tensor) -> bool:
        """Whether `backward` can have these: a gradient, the input and its four parameters.

        All are looked at again: they can change behind autograd's back (``p.data = ...``).
        """
        if self._taken is not None and self._taken.check(*tensors):
            return True
        if not (plain(*tensors) and self._fit(*tensors)):
            return False
        self._taken = guard(*tensors)
        return True

    def _fit(self, grad: Tensor, x: Tensor, *params: Tensor) -> bool:
        """Whether all lie in memory as they should, and the results need no conversion."""
        return (
            _key(x, params, None) == self._key
            and all(_looks(t) == self._like_x for t in (grad, x))
            and all(_looks(p) == self._like_param for p in params)
        )

    def backward(self, grad: Tensor, x: Tensor, *params: Tensor) -> tuple[Tensor, ...]:
        """The gradients of ``x`` and of its four parameters."""
        t_r, a_r, t_l, a_l = params
        empty = torch.empty_like
        grads = empty(t_r), empty(a_r), empty(t_l), empty(a_l)  # cheaper than rows of one tensor
        call = (self._key, grad, x, params, None, True, (*grads, None))
        if _elsewhere(x):
            with torch.cuda.device(x.device):
                grad_x = self._backward(*call)
        else:
            grad_x = self._backward(*call)
        assert grad_x is not None
        return (grad_x, *grads)


def _looks(t: Tensor) -> tuple:
    return t.shape, t.stride(), t.dtype, t.device


def _compute(dtype: torch.dtype) -> tl.dtype:
    return tl.float64 if dtype == torch.float64 else tl.float32


def _packed(
    params: Sequence[Tensor], bias: Tensor | None
) -> tuple[Sequence[Tensor], Tensor | None]:
    if bias is not None:
        bias = bias.contiguous()
    t_r, a_r, t_l, a_l = params
    if t_r.is_contiguous() and a_r.is_contiguous() and t_l.is_contiguous() and a_l.is_contiguous():
        return params, bias
    return [p.contiguous() for p in params], bias


def _key(x: Tensor, params: Sequence[Tensor], bias: Tensor | None) -> tuple:
    t_r, a_r, t_l, a_l = params
    dtype = None if bias is None else bias.dtype
    return (x.get_device(), t_r.dtype, a_r.dtype, t_l.dtype, a_l.dtype, dtype)


def _elsewhere(x: Tensor) -> bool:
    """Triton launches on the current device, which need not be the tensor's."""
    return x.is_cuda and x.get_device() != torch._C._cuda_getDevice()
