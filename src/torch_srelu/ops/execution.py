"""SReLU of real tensors and its gradients, by whichever execution serves them."""

from __future__ import annotations

import torch
from torch import Tensor

from . import backends, layout, reference
from .batch_norm import Norm


def compute(
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int,
    bias: Tensor | None = None,
) -> Tensor:
    """SReLU of ``x``, or of ``x + bias``, by whichever execution serves ``x``."""
    kernels = backends.kernels(x)
    if kernels is None or x.numel() == 0:
        return _strided_as(x, reference.srelu(add_bias(x, bias, dim), t_r, a_r, t_l, a_l, dim))
    if bias is not None and not kernels.ADDS_BIAS:
        return _strided_as(x, compute(add_bias(x, bias, dim), t_r, a_r, t_l, a_l, dim))
    x, view = _dense(x, t_r, dim)
    params = tuple(p.resolve_neg() for p in (t_r, a_r, t_l, a_l))
    if bias is None:
        return kernels.forward(x, params, view)
    return kernels.forward(x, params, view, bias.resolve_neg())


def compute_backward(
    grad: Tensor,
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int,
    need_input: bool,
    need_params: bool,
    bias: Tensor | None = None,
    need_bias: bool = False,
    more: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of ``x`` and, as rows in the dtype of the arithmetic, those of the channels.

    Rows are the four parameters and the bias, as far as they are needed. By whichever execution
    serves ``x``. What is not needed is None. ``more`` is added to ``grad``.
    """
    kernels = backends.kernels(x)
    if more is not None and (kernels is None or not kernels.JOINS or x.numel() == 0):
        grad, more = grad + more, None
    params = (t_r, a_r, t_l, a_l)
    apart = None  # what computes it where bias and SReLU come one after the other
    if kernels is None or x.numel() == 0:
        apart = reference_backward
    elif bias is not None and not kernels.ADDS_BIAS:
        apart = compute_backward
    if kernels is None or apart is not None:
        needs = (need_input, need_params, bias, need_bias)
        grad_x, rows = after_bias(apart, grad, x, params, dim, *needs)
        return grad_x if grad_x is None else _strided_as(x, grad_x), rows
    x, view = _dense(x, t_r, dim)
    grad = layout.like(grad, x)
    params = tuple(p.resolve_neg() for p in params)
    if more is not None:
        assert bias is None, "there is no kernel for both"
        more = layout.like(more, x)
        return kernels.backward(grad, x, params, view, need_input, need_params, more=more)
    if bias is None:
        return kernels.backward(grad, x, params, view, need_input, need_params)
    bias = bias.resolve_neg()
    return kernels.backward(grad, x, params, view, need_input, need_params, bias, need_bias)


def compute_backward_joined(
    grad: Tensor,
    more: Tensor | None,
    x: Tensor | None,
    params: tuple[Tensor, Tensor, Tensor, Tensor],
    dim: int,
    need_params: bool,
    norm: Norm,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """`compute_backward` of ``grad + more``, and the `Norm.moments` of the gradient of ``x``.

    ``x`` is missing where it is `Norm.output`.
    """
    given = norm.z if x is None else x
    kernels = backends.kernels(given)
    if kernels is not None and kernels.JOINS and given.numel():
        dense, view = _dense(given, params[0], dim)
        if kernels.takes_norm(view):
            more = more if more is None else layout.like(more, dense)
            beside = norm.residual if x is None else norm.z
            beside = beside if beside is None else layout.like(beside, dense)
            numbers = (n if n is None else n.contiguous() for n in norm[1:4])
            return kernels.backward_joined(
                layout.like(grad, dense),
                more,
                dense,
                tuple(p.resolve_neg() for p in params),
                view,
                need_params,
                (beside, *numbers),
            )
    x = norm.output(dim) if x is None else x
    grad_x, rows = compute_backward(grad, x, *params, dim, True, need_params, more=more)
    assert grad_x is not None
    return grad_x, rows, norm.moments(grad_x, dim)


def add_bias(x: Tensor, bias: Tensor | None, dim: int) -> Tensor:
    """``x + bias`` along ``dim``, in the dtype of ``x``."""
    if bias is None:
        return x
    shape = [1] * x.dim()
    shape[dim] = -1
    return x + bias.to(x.dtype).view(shape)


def after_bias(
    backward, grad, x, params, dim, need_input, need_params, bias, need_bias
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients by ``backward``, which knows no bias; its gradient is a sum of the input's."""
    need_any = need_input or need_bias
    x = add_bias(x, bias, dim)
    grad_x, rows = backward(grad, x, *params, dim, need_any, need_params)
    if need_bias:
        row = reference.over_channels(grad_x.to(reference.compute_dtype(x)), dim)[None]
        rows = torch.cat([rows, row]) if need_params else row
    return grad_x if need_input else None, rows


def reference_backward(
    grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params
) -> tuple[Tensor, Tensor | None]:
    grad_x, *grads = reference.srelu_backward(grad, x, t_r, a_r, t_l, a_l, dim)
    rows = torch.stack([g.to(reference.compute_dtype(x)) for g in grads])
    return grad_x, rows if need_params else None


def _strided_as(x: Tensor, y: Tensor) -> Tensor:
    """``y`` with exactly the strides that the fake kernels promise."""
    promised = torch.empty_like(x)
    return y if y.stride() == promised.stride() else promised.copy_(y)


def _dense(x: Tensor, t_r: Tensor, dim: int) -> tuple[Tensor, layout.View]:
    """``x``, copied if it has gaps, and its view."""
    if x.layout is not torch.strided:
        raise TypeError(f"x must be a strided tensor, got layout {x.layout}: call x.to_dense()")
    channels = t_r.shape[0]
    view = None if x.is_neg() or x._is_zerotensor() else layout.view(x, channels, dim)
    if view is None:
        x = layout.densify(x)
        view = layout.view(x, channels, dim)
        assert view is not None, "densify left gaps"
    return x, view
