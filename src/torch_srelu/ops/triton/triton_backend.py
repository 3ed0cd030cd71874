"""The Triton backend: launches of the forward and the backward kernels.

Kernels are in `triton_forward_kernels` and `triton_backward_kernels`, grids and block sizes in
`triton_tiling`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from ..arguments import Needs, Parameters
from ..call_cache import PreparedCall
from ..layout import ChannelView
from ..reference import compute_dtype
from . import triton_backward_kernels as backward_kernels
from . import triton_forward_kernels as forward_kernels
from .triton_launch import Launch
from .triton_tiling import (
    MAX_COLUMNS,
    backward_tiling,
    cdiv,
    forward_tiling,
    grid,
    is_runs,
    next_power_of_2,
)

FUSES = True  # its kernels add a bias and a second gradient, and compute `BatchNormInput` sums

NO_OUT = (None,) * len(backward_kernels.OUT)
NO_NORM = (None,) * len(backward_kernels.NORM)
BACKWARD = {  # with `BackwardLaunches.fused` and `BackwardLaunches.out`
    "runs": (backward_kernels.backward_runs, 1, len(NO_OUT)),
    "rows": (backward_kernels.backward_rows, 1, 0),
    "columns": (backward_kernels.backward_columns, 1 + len(NO_NORM), 0),
}


@functools.lru_cache(maxsize=4096)
def _forward_launch(view: ChannelView, dtype: torch.dtype) -> Launch:
    tiling = forward_tiling(view, dtype)
    meta: dict[str, Any] = {"COMPUTE": _compute(dtype)}
    if tiling.pattern == "columns":
        meta["ALIGNED"] = view.inner == 1 and view.channels % tiling.meta["VECTOR"] == 0
    meta |= tiling.meta
    programs = grid(tiling)
    # Programs beyond the last step need the mask.
    meta["EVEN"] &= math.prod(programs) == tiling.groups * tiling.steps
    kernel = getattr(forward_kernels, f"forward_{tiling.pattern}")
    return Launch(kernel, programs, tiling.sizes, meta)


class BackwardLaunches(NamedTuple):
    """The two launches of a backward pass; only one with a single split or without sums."""

    first: Launch
    fused: int  # optional tensors of the first kernel: the second gradient, a `BatchNormInput`
    out: int  # gradients of parameters that the first kernel could write itself
    sums: tuple[int, int]  # the shape of its partial sums
    second: Launch | None  # adds these

    def __call__(
        self,
        key: tuple,
        grad: Tensor,
        x: Tensor,
        params: Sequence[Tensor],
        bias: Tensor | None,
        need_input: bool,
        out: Sequence[Tensor | None],
        second_grad: Tensor | None = None,
        norm: Sequence[Tensor | None] = NO_NORM,
    ) -> Tensor | None:
        """The gradient of ``x``; those of the parameters and the bias go to ``out``."""
        grad_x = torch.empty_like(x) if need_input else None
        fused = (second_grad, *norm)[: self.fused]
        if self.second is None:
            self.first(key, grad, x, grad_x, None, *params, bias, *fused, out=out[: self.out])
            return grad_x
        sums = x.new_empty(self.sums, dtype=compute_dtype(x))
        self.first(key, grad, x, grad_x, sums, *params, bias, *fused, out=NO_OUT[: self.out])
        self.second(key, sums, params[1], params[3], out=out)
        return grad_x


@functools.lru_cache(maxsize=4096)
def _backward_launch(
    view: ChannelView,
    dtype: torch.dtype,
    need_input: bool,
    need_params: bool,
    input_sums: int,  # sums of the input's gradient: 1 for a bias, 2 for a norm
    tensors: int = 2,  # that are read: the gradient, a second one, the input, a norm's
) -> BackwardLaunches:
    tiling = backward_tiling(view, dtype, tensors, norm=input_sums == 2)
    planes = 4 * need_params + input_sums
    single_split = tiling.pattern == "runs" and tiling.splits == 1
    common = {"PARAMS": need_params, "INPUT_SUMS": input_sums, "COMPUTE": _compute(dtype)}
    meta = {"INPUT": need_input, **common}
    if tiling.pattern == "runs":
        meta["SINGLE_SPLIT"] = single_split
    kernel, fused, out = BACKWARD[tiling.pattern]
    sizes = (*tiling.sizes, tiling.steps, tiling.splits)
    first = Launch(kernel, grid(tiling), sizes, {**meta, **tiling.meta})
    if single_split or not planes:
        return BackwardLaunches(first, fused, out, (0, 0), None)
    channels = view.channels
    splits = tiling.partial_sums // (channels * tiling.adjacent_sums)
    # Few channels and many partial sums to a program: all of their loads are in flight at once.
    width = min(8, next_power_of_2(channels))
    block = min(4096, next_power_of_2(splits * tiling.adjacent_sums))
    num_warps = 4 if block <= 512 else 8 if block <= 2048 else 16
    meta = {**common, "PARTS": block, "CHANNELS": width, "num_warps": num_warps}
    programs = (cdiv(channels, width), planes, 1)
    second = Launch(
        backward_kernels.finish, programs, (splits, channels, tiling.adjacent_sums), meta
    )
    return BackwardLaunches(first, fused, out, (planes, tiling.partial_sums), second)


def forward(x: Tensor, params: Parameters, view: ChannelView, bias: Tensor | None = None) -> Tensor:
    """SReLU of the dense tensor ``x``, or of ``x + bias``."""
    y = torch.empty_like(x)
    params, bias = _contiguous(params, bias)
    _forward_launch(view, x.dtype)(_key(x, params, bias), x, y, *params, bias)
    return y


def backward(
    grad: Tensor,
    x: Tensor,
    params: Parameters,
    view: ChannelView,
    needs: Needs,
    bias: Tensor | None = None,
    second_grad: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the dense ``x`` (``grad`` has its layout), the parameters and the bias.

    The latter are rows of one tensor, as far as they are needed: four parameters, then the bias.
    ``second_grad``, in the same layout, is added to ``grad``.
    """
    params, bias = _contiguous(params, bias)
    tensors = 2 if second_grad is None else 3
    launch = _backward_launch(view, x.dtype, needs.input, needs.params, int(needs.bias), tensors)
    rows, out = None, NO_OUT
    if needs.params or needs.bias:
        rows = x.new_empty((4 * needs.params + needs.bias, view.channels), dtype=compute_dtype(x))
        of_params = rows[:4].unbind() if needs.params else NO_OUT[:4]
        out = (*of_params, rows[-1] if needs.bias else None)
    return launch(_key(x, params, bias), grad, x, params, bias, needs.input, out, second_grad), rows


def fuses_batch_norm(view: ChannelView) -> bool:
    """Whether `backward_with_batch_norm` takes such tensors: those whose tiling is columns."""
    return not is_runs(view) and view.channels * view.inner < MAX_COLUMNS


def backward_with_batch_norm(
    grad: Tensor,
    second_grad: Tensor | None,
    x: Tensor,
    params: Parameters,
    view: ChannelView,
    need_params: bool,
    norm: Sequence[Tensor | None],
) -> tuple[Tensor, Tensor | None, Tensor]:
    """`backward`, and the sums of a `BatchNormInput`.

    ``norm`` is what `backward_kernels.NORM` names. With a scale, ``x`` is the norm's input ``z``.
    """
    params, _ = _contiguous(params, None)
    tensors = 2 + sum(t is not None for t in (second_grad, norm[0]))
    launch = _backward_launch(view, x.dtype, True, need_params, 2, tensors)
    empty = functools.partial(x.new_empty, dtype=compute_dtype(x))
    sums, rows = empty((2, view.channels)), None
    out = NO_OUT[:4]
    if need_params:
        rows = empty((4, view.channels))
        out = rows.unbind()
    # Which tensors are None decides what Triton compiles.
    key = (*_key(x, params, None), second_grad is None, *(t is None for t in norm))
    grad_x = launch(key, grad, x, params, None, True, (*out, sums), second_grad, norm)
    assert grad_x is not None
    return grad_x, rows, sums


class PreparedTritonCall(PreparedCall):
    """A `PreparedCall` for Triton kernels."""

    def __init__(
        self, x: Tensor, params: Parameters, view: ChannelView, bias: Tensor | None
    ) -> None:
        super().__init__(x, params, view, bias)
        self._key = _key(x, params, bias)
        self._forward = _forward_launch(view, x.dtype)
        self._backward = _backward_launch(view, x.dtype, True, True, int(bias is not None))

    def forward(self, x: Tensor, *per_channel: Tensor | None) -> Tensor:
        y = torch.empty_like(x)
        self._forward(self._key, x, y, *per_channel)
        return y

    def fits(self, grad: Tensor, x: Tensor, *per_channel: Tensor) -> bool:
        key = _key(x, per_channel[:4], per_channel[4] if per_channel[4:] else None)
        return key == self._key and super().fits(grad, x, *per_channel)

    def backward(self, grad: Tensor, x: Tensor, *per_channel: Tensor) -> tuple[Tensor, ...]:
        """The gradients of ``x``, of its four parameters and of the bias, if there is one."""
        grads = [torch.empty_like(p) for p in per_channel]  # cheaper than rows of one tensor
        params, bias = per_channel[:4], per_channel[4] if per_channel[4:] else None
        out = (*grads, None)[:5]
        grad_x = self._backward(self._key, grad, x, params, bias, True, out)
        assert grad_x is not None
        return grad_x, *grads


prepare = PreparedTritonCall  # as every backend names it


def _compute(dtype: torch.dtype) -> tl.dtype:
    return tl.float64 if dtype == torch.float64 else tl.float32


def _contiguous(params: Parameters, bias: Tensor | None) -> tuple[Parameters, Tensor | None]:
    if bias is not None:
        bias = bias.contiguous()
    t_r, a_r, t_l, a_l = params
    if t_r.is_contiguous() and a_r.is_contiguous() and t_l.is_contiguous() and a_l.is_contiguous():
        return params, bias
    return Parameters(*(p.contiguous() for p in params)), bias


def _key(x: Tensor, params: Sequence[Tensor], bias: Tensor | None) -> tuple:
    t_r, a_r, t_l, a_l = params
    dtype = None if bias is None else bias.dtype
    return (x.get_device(), t_r.dtype, a_r.dtype, t_l.dtype, a_l.dtype, dtype)
