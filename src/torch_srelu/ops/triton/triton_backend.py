"""The CUDA backend on the host: which launches make up a forward and a backward pass.

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

from ..arguments import Parameters
from ..call_cache import PreparedCall
from ..layout import View
from ..reference import compute_dtype
from . import triton_backward_kernels as backward_kernels
from . import triton_forward_kernels as kernels
from .triton_launch import Launch
from .triton_tiling import (
    MOST_COLUMNS,
    ceil,
    cut_backward,
    cut_forward,
    grid,
    is_runs,
    power_of_two,
)

ADDS_BIAS = True  # its kernels compute SReLU of x + bias
FUSES_BACKWARD = True  # they add two gradients, and compute the sums of a `BatchNormInput`

NO_OUT = (None,) * len(backward_kernels.OUT)
NO_NORM = (None,) * len(backward_kernels.NORM)
FORWARD = {
    "runs": kernels.forward_runs,
    "spans": kernels.forward_spans,
    "rows": kernels.forward_rows,
    "columns": kernels.forward_columns,
}
BACKWARD = {  # with `Backward.fused` and `Backward.out`
    "runs": (backward_kernels.backward_runs, 1, len(NO_OUT)),
    "rows": (backward_kernels.backward_rows, 1, 0),
    "columns": (backward_kernels.backward_columns, 1 + len(NO_NORM), 0),
}


@functools.lru_cache(maxsize=4096)
def _forward_launch(view: View, dtype: torch.dtype) -> Launch:
    how = cut_forward(view, dtype)
    meta: dict[str, Any] = {"COMPUTE": _compute(dtype)}
    if how.way == "columns":
        meta["ALIGNED"] = view.inner == 1 and view.channels % how.meta["VECTOR"] == 0
    meta |= how.meta
    programs = grid(how)
    # Programs beyond the last step are to find that nothing of the tensor is left.
    meta["EVEN"] &= math.prod(programs) == how.groups * how.steps
    return Launch(FORWARD[how.way], programs, how.sizes, meta)


class Backward(NamedTuple):
    """The kernel, and where it cannot finish the job the shape of its sums and a second kernel."""

    first: Launch
    fused: int  # how many tensors the first takes beside a gradient, an input and its channels'
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
    view: View,
    dtype: torch.dtype,
    need_input: bool,
    need_params: bool,
    input_sums: int,  # of the input's gradient: 1 for a bias, 2 for a norm
    tensors: int = 2,  # that are read: the gradient, its second part, the input, a norm's
) -> Backward:
    how = cut_backward(view, dtype, tensors, norm=input_sums == 2)
    planes = 4 * need_params + input_sums
    alone = how.way == "runs" and how.splits == 1
    compute = _compute(dtype)
    meta = {
        "INPUT": need_input,
        "PARAMS": need_params,
        "INPUT_SUMS": input_sums,
        "COMPUTE": compute,
    }
    if how.way == "runs":
        meta["ALONE"] = alone
    kernel, fused, out = BACKWARD[how.way]
    sizes = (*how.sizes, how.steps, how.splits)
    first = Launch(kernel, grid(how), sizes, {**meta, **how.meta})
    if alone or not planes:
        return Backward(first, fused, out, (0, 0), None)
    channels = view.channels
    splits = how.sums // (channels * how.beside)
    # Few channels and many parts to a program: all of them are under way at once.
    width = min(8, power_of_two(channels))
    at_once = min(4096, power_of_two(splits * how.beside))
    meta = {"PARAMS": need_params, "INPUT_SUMS": input_sums, "COMPUTE": compute}
    meta |= {"PARTS": at_once, "CHANNELS": width}
    warps = 4 if at_once <= 512 else 8 if at_once <= 2048 else 16
    meta["num_warps"] = warps
    programs = (ceil(channels, width), planes, 1)
    second = Launch(backward_kernels.finish, programs, (splits, channels, how.beside), meta)
    return Backward(first, fused, out, (planes, how.sums), second)


def forward(x: Tensor, params: Sequence[Tensor], view: View, bias: Tensor | None = None) -> Tensor:
    """SReLU of the dense tensor ``x``, or of ``x + bias``."""
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
    second_grad: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the dense ``x`` (``grad`` has its layout) and of what belongs to channels.

    These are rows of one tensor, as far as they are needed: the four parameters, then the bias.
    ``second_grad``, laid out like ``grad``, is added to it.
    """
    params, bias = _packed(params, bias)
    tensors = 2 if second_grad is None else 3
    needs = (need_input, need_params, int(need_bias))
    launch = _backward_launch(view, x.dtype, *needs, tensors)
    rows, out = None, NO_OUT
    if need_params or need_bias:
        rows = x.new_empty((4 * need_params + need_bias, view.channels), dtype=compute_dtype(x))
        of_params = rows[:4].unbind() if need_params else NO_OUT[:4]
        out = (*of_params, rows[-1] if need_bias else None)
    return launch(_key(x, params, bias), grad, x, params, bias, need_input, out, second_grad), rows


def fuses_batch_norm(view: View) -> bool:
    """Whether `backward_with_batch_norm` serves such tensors: the backward pass takes columns."""
    return not is_runs(view) and view.channels * view.inner < MOST_COLUMNS


def backward_with_batch_norm(
    grad: Tensor,
    second_grad: Tensor | None,
    x: Tensor,
    params: Sequence[Tensor],
    view: View,
    need_params: bool,
    norm: Sequence[Tensor | None],
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Like `backward`, with the moments of a `BatchNormInput`.

    ``norm`` is what `backward_kernels.NORM` names. With a scale, ``x`` is what was normalised.
    """
    params, _ = _packed(params, None)
    tensors = 2 + sum(t is not None for t in (second_grad, norm[0]))
    launch = _backward_launch(view, x.dtype, True, need_params, 2, tensors)
    empty = functools.partial(x.new_empty, dtype=compute_dtype(x))
    moments, rows = empty((2, view.channels)), None
    out = NO_OUT[:4]
    if need_params:
        rows = empty((4, view.channels))
        out = rows.unbind()
    # Which tensors there are decides what is compiled.
    key = (*_key(x, params, None), second_grad is None, *(t is None for t in norm))
    grad_x = launch(key, grad, x, params, None, True, (*out, moments), second_grad, norm)
    assert grad_x is not None
    return grad_x, rows, moments


class PreparedTritonCall(PreparedCall):
    """A `PreparedCall` for Triton kernels.

    Args:
        x: A dense tensor of the signature.
        params: Its parameters, contiguous.
        view: Of ``x``.
        bias: As long as the parameters, contiguous; None if calls of this signature have none.
    """

    def __init__(self, x: Tensor, params: Parameters, view: View, bias: Tensor | None) -> None:
        super().__init__(x, params)
        self._key = _key(x, params, bias)
        self._forward = _forward_launch(view, x.dtype)
        self._backward = _backward_launch(view, x.dtype, True, True, int(bias is not None))

    def forward(
        self,
        x: Tensor,
        t_r: Tensor,
        a_r: Tensor,
        t_l: Tensor,
        a_l: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        y = torch.empty_like(x)
        self._forward(self._key, x, y, t_r, a_r, t_l, a_l, bias)
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


def prepare(x: Tensor, params: Parameters, view: View, bias: Tensor | None) -> PreparedTritonCall:
    """A prepared call of tensors like these."""
    return PreparedTritonCall(x, params, view, bias)


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
