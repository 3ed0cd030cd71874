"""Computes SReLU of real tensors, and its gradients, on the backend that serves them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .. import _torch_compat
from . import backends, layout, reference
from .arguments import Parameters
from .fused_batch_norm import BatchNormInput


def forward(x: Tensor, params: Parameters, dim: int, bias: Tensor | None = None) -> Tensor:
    """SReLU of ``x``, or of ``x + bias``."""
    kernels = backends.select(x)
    if kernels is None or x.numel() == 0:
        return _strided_as(x, reference.srelu(add_bias(x, bias, dim), *params, dim))
    if bias is not None and not kernels.ADDS_BIAS:
        return _strided_as(x, forward(add_bias(x, bias, dim), params, dim))
    x, view = _dense(x, params, dim)
    return kernels.forward(x, _resolved(params), view, bias if bias is None else bias.resolve_neg())


def backward(
    grad: Tensor,
    x: Tensor,
    params: Parameters,
    dim: int,
    need_input: bool,
    need_params: bool,
    bias: Tensor | None = None,
    need_bias: bool = False,
    second_grad: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of ``x``, and rows with those of the parameters and the bias.

    Rows are (4 or 5 or 1, C), as far as they are needed, in the dtype of the arithmetic. What is
    not needed is None. ``second_grad`` is added to ``grad``.
    """
    kernels = backends.select(x)
    if kernels is None or x.numel() == 0:
        kernels = None
    if second_grad is not None and (kernels is None or not kernels.FUSES_BACKWARD):
        grad, second_grad = grad + second_grad, None
    needs = (need_input, need_params)
    if kernels is None:
        grad_x, rows = plain_backward(grad, x, params, dim, *needs, bias, need_bias)
        return grad_x if grad_x is None else _strided_as(x, grad_x), rows
    if bias is not None and not kernels.ADDS_BIAS:
        grad_x, rows = _with_bias(backward, grad, x, params, dim, *needs, bias, need_bias)
        return grad_x if grad_x is None else _strided_as(x, grad_x), rows
    x, view = _dense(x, params, dim)
    tensors = layout.like(grad, x), x, _resolved(params), view, *needs
    if second_grad is not None:
        assert bias is None, "there is no kernel for both"
        return kernels.backward(*tensors, second_grad=layout.like(second_grad, x))
    return kernels.backward(*tensors, bias if bias is None else bias.resolve_neg(), need_bias)


def backward_with_batch_norm(
    grad: Tensor,
    second_grad: Tensor | None,
    x: Tensor | None,
    params: Parameters,
    dim: int,
    need_params: bool,
    norm: BatchNormInput,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """`backward` of ``grad + second_grad``, and `BatchNormInput.sums` of the gradient of ``x``.

    ``x`` is None where it is `BatchNormInput.output`, which is then computed anew.
    """
    given = norm.z if x is None else x
    kernels = backends.select(given)
    if kernels is not None and kernels.FUSES_BACKWARD and given.numel():
        dense, view = _dense(given, params, dim)
        if kernels.fuses_batch_norm(view):
            other = norm.residual if x is None else norm.z
            second_grad, other = (
                t if t is None else layout.like(t, dense) for t in (second_grad, other)
            )
            per_channel = (n if n is None else n.contiguous() for n in norm[1:4])
            return kernels.backward_with_batch_norm(
                layout.like(grad, dense),
                second_grad,
                dense,
                _resolved(params),
                view,
                need_params,
                (other, *per_channel),
            )
    x = norm.output(dim) if x is None else x
    grad_x, rows = backward(grad, x, params, dim, True, need_params, second_grad=second_grad)
    assert grad_x is not None
    return grad_x, rows, norm.sums(grad_x, dim)


def plain_backward(
    grad, x, params, dim, need_input, need_params, bias=None, need_bias=False
) -> tuple[Tensor | None, Tensor | None]:
    """`backward` by torch's own operators."""
    return _with_bias(_reference, grad, x, params, dim, need_input, need_params, bias, need_bias)


def _reference(
    grad: Tensor, x: Tensor, params: Parameters, dim: int, need_input: bool, need_params: bool
) -> tuple[Tensor, Tensor | None]:
    grad_x, *grads = reference.srelu_backward(grad, x, *params, dim)
    rows = torch.stack([g.to(reference.compute_dtype(x)) for g in grads])
    return grad_x, rows if need_params else None


def _with_bias(
    unbiased: Callable, grad, x, params, dim, need_input, need_params, bias, need_bias
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients by ``unbiased``; that of the bias is a sum of the input's."""
    x = add_bias(x, bias, dim)
    grad_x, rows = unbiased(grad, x, params, dim, need_input or need_bias, need_params)
    if need_bias:
        row = reference.over_channels(grad_x.to(reference.compute_dtype(x)), dim)[None]
        rows = torch.cat([rows, row]) if need_params else row
    return grad_x if need_input else None, rows


def add_bias(x: Tensor, bias: Tensor | None, dim: int) -> Tensor:
    """``x + bias`` along ``dim``, in the dtype of ``x``."""
    if bias is None:
        return x
    shape = [1] * x.dim()
    shape[dim] = -1
    return x + bias.to(x.dtype).view(shape)


def _strided_as(x: Tensor, y: Tensor) -> Tensor:
    """``y`` with exactly the strides that the fake kernels promise."""
    promised = torch.empty_like(x)
    return y if y.stride() == promised.stride() else promised.copy_(y)


def _resolved(params: Parameters) -> Parameters:
    return Parameters(*(p.resolve_neg() for p in params))


def _dense(x: Tensor, params: Parameters, dim: int) -> tuple[Tensor, layout.ChannelView]:
    """``x``, copied if it has gaps, and its view."""
    if x.layout is not torch.strided:
        raise TypeError(f"x must be a strided tensor, got layout {x.layout}: call x.to_dense()")
    channels = params.t_r.shape[0]
    lazy = x.is_neg() or _torch_compat.is_zero_tensor(x)
    view = None if lazy else layout.view(x, channels, dim)
    if view is None:
        x = layout.densify(x)
        view = layout.view(x, channels, dim)
        assert view is not None, "densify left gaps"
    return x, view
