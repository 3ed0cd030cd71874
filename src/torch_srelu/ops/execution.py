"""Computes SReLU of real tensors, and its gradients, on the backend that serves them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from .. import _torch_compat
from . import backends, layout, reference
from .arguments import Needs, Parameters
from .fused_batch_norm import BatchNormInput


def forward(x: Tensor, params: Parameters, dim: int, bias: Tensor | None = None) -> Tensor:
    """SReLU of ``x``, or of ``x + bias``."""
    kernels = backends.select(x)
    if kernels is None or x.numel() == 0:
        return _strided_as(x, reference.srelu(add_bias(x, bias, dim), *params, dim))
    if bias is not None and not kernels.FUSES:
        return _strided_as(x, forward(add_bias(x, bias, dim), params, dim))
    x, view = _dense(x, params, dim)
    return kernels.forward(x, _resolved(params), view, bias if bias is None else bias.resolve_neg())


def backward(
    grad: Tensor, x: Tensor, params: Parameters, dim: int, needs: Needs, bias=None, second_grad=None
) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of ``x``, and rows with those of the parameters and the bias.

    Rows are (4 or 5 or 1, C), as far as they are needed, in the dtype of the arithmetic. What is
    not needed is None. ``second_grad`` is added to ``grad``.
    """
    kernels = backends.select(x) if x.numel() else None
    fuses = kernels is not None and kernels.FUSES
    if second_grad is not None and not fuses:
        grad, second_grad = grad + second_grad, None
    if kernels is None or (bias is not None and not fuses):
        unbiased = _reference if kernels is None else backward
        grad_x, rows = _with_bias(unbiased, grad, x, params, dim, needs, bias)
        return grad_x if grad_x is None else _strided_as(x, grad_x), rows
    x, view = _dense(x, params, dim)
    tensors = layout.like(grad, x), x, _resolved(params), view, needs
    if second_grad is not None:
        assert bias is None, "there is no kernel for both"
        return kernels.backward(*tensors, second_grad=layout.like(second_grad, x))
    return kernels.backward(*tensors, bias if bias is None else bias.resolve_neg())


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
    if kernels is not None and kernels.FUSES and given.numel():
        dense, view = _dense(given, params, dim)
        if kernels.fuses_batch_norm(view):
            other = norm.residual if x is None else norm.z
            second_grad, other = (
                t if t is None else layout.like(t, dense) for t in (second_grad, other)
            )
            per_channel = (n if n is None else n.contiguous() for n in norm[1:4])
            tensors = layout.like(grad, dense), second_grad, dense, _resolved(params), view
            norm_tensors = (other, *per_channel)
            return kernels.backward_with_batch_norm(*tensors, need_params, norm_tensors)
    x = norm.output(dim) if x is None else x
    grad_x, rows = backward(grad, x, params, dim, Needs(True, need_params), None, second_grad)
    assert grad_x is not None
    return grad_x, rows, norm.sums(grad_x, dim)


def _reference(
    grad: Tensor, x: Tensor, params: Parameters, dim: int, needs: Needs
) -> tuple[Tensor, Tensor | None]:
    grad_x, *grads = reference.srelu_backward(grad, x, *params, dim)
    rows = torch.stack([g.to(reference.compute_dtype(x)) for g in grads])
    return grad_x, rows if needs.params else None


def _with_bias(
    unbiased: Callable, grad, x, params, dim, needs: Needs, bias
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients by ``unbiased``; that of the bias is a sum of the input's."""
    x = add_bias(x, bias, dim)
    unbiased_needs = Needs(needs.input or needs.bias, needs.params)
    grad_x, rows = unbiased(grad, x, params, dim, unbiased_needs)
    if needs.bias:
        row = reference.over_channels(grad_x.to(reference.compute_dtype(x)), dim)[None]
        rows = torch.cat([rows, row]) if needs.params else row
    return grad_x if needs.input else None, rows


plain_backward = functools.partial(_with_bias, _reference)  # `backward` by torch's own operators


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
