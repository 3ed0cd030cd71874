"""SReLU as PyTorch operators: ``torch.ops.torch_srelu.srelu`` and its differentiable backward.

For whatever traces or intercepts operators: torch.compile, fake tensors, dispatch modes. Eager
calls go to the same kernels through `autograd`, at less host time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import execution, reference
from .arguments import Needs, Parameters, check_gradient, check_lengths
from .fused_batch_norm import BatchNormInput
from .inductor import inductor_patterns

_library = torch.library.Library("torch_srelu", "DEF")


def _operator(schema: str) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function as the operator of its name and returns that.

    Not torch.library.custom_op, whose checks of every call cost the host as much as the rest.
    """

    def register(function: Callable[..., Any]) -> Any:
        name = function.__name__
        _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(name, function, "CompositeExplicitAutograd")
        return getattr(torch.ops.torch_srelu, name).default

    return register


_PARAMETERS = "Tensor t_r, Tensor a_r, Tensor t_l, Tensor a_l, SymInt dim"


@_operator(f"(Tensor x, {_PARAMETERS}, bool frozen, Tensor? bias=None) -> Tensor")
def srelu(x, t_r, a_r, t_l, a_l, dim, frozen, bias=None):
    """SReLU of ``x``, or of ``x + bias``; ``frozen`` is for its gradients."""
    params = Parameters(t_r, a_r, t_l, a_l)
    check_lengths(x, params if bias is None else (*params, bias), dim)
    return execution.forward(x, params, dim, bias)


@torch.library.register_fake("torch_srelu::srelu", lib=_library)
def _(x, t_r, a_r, t_l, a_l, dim, frozen, bias=None):
    inductor_patterns.register()
    return torch.empty_like(x)


@_operator(
    f"(Tensor grad, Tensor x, {_PARAMETERS}, bool need_input, bool need_params, "
    "Tensor? bias=None, bool need_bias=False) -> (Tensor, Tensor)"
)
def srelu_backward(
    grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params, bias=None, need_bias=False
):
    """The gradient of ``x``, and rows of those of the parameters and the bias."""
    params, needs = Parameters(t_r, a_r, t_l, a_l), Needs(need_input, need_params, need_bias)
    check_lengths(x, params if bias is None else (*params, bias), dim)
    check_gradient(grad, x)
    return _no_none(x, *execution.backward(grad, x, params, dim, needs, bias))


def _no_none(x: Tensor, grad_x: Tensor | None, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    """An operator cannot return None: what is not needed is an empty tensor."""
    return x.new_empty(0) if grad_x is None else grad_x, x.new_empty(0) if rows is None else rows


@torch.library.register_fake("torch_srelu::srelu_backward", lib=_library)
def _(grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params, bias=None, need_bias=False):
    return _fake_gradients(x, t_r.shape[0], need_input, 4 * need_params + need_bias)


def _fake_gradients(x: Tensor, channels: int, need_input: bool, rows: int):
    sums = x.new_empty((rows, channels), dtype=reference.compute_dtype(x)) if rows else None
    return _no_none(x, torch.empty_like(x) if need_input else None, sums)


@_operator(
    f"(Tensor grad, Tensor? second_grad, Tensor? x, {_PARAMETERS}, bool need_params, Tensor? z, "
    "Tensor? mean, Tensor? scale, Tensor? shift, Tensor? residual) -> (Tensor, Tensor, Tensor)"
)
def srelu_backward_fused(
    grad, second_grad, x, t_r, a_r, t_l, a_l, dim, need_params, z, mean, scale, shift, residual
):
    """`srelu_backward` fused with its neighbours in a compiled network (`inductor_patterns`).

    The gradient is ``grad + second_grad``. ``z`` and what follows are a `BatchNormInput`; with
    ``scale`` there is no ``x``, which is then its output. Its sums are the third result.
    """
    params, given = Parameters(t_r, a_r, t_l, a_l), z if x is None else x
    recomputed = z is not None and scale is not None and shift is not None
    if given is None or recomputed is not (x is None) or (z is None) is not (mean is None):
        raise ValueError("pass x, or z with mean, scale and shift; with x, z needs its mean")
    check_lengths(given, params, dim)
    for tensor in (grad, second_grad, z, residual):
        if tensor is not None:
            check_gradient(tensor, given)
    if z is None or mean is None:
        needs = Needs(True, need_params)
        grads = execution.backward(grad, given, params, dim, needs, None, second_grad)
        return *_no_none(given, *grads), given.new_empty(0)
    norm = BatchNormInput(z, mean, scale, shift, residual)
    norm.check_lengths(dim)
    arguments = (grad, second_grad, x, params, dim, need_params, norm)
    grad_x, rows, sums = execution.backward_with_batch_norm(*arguments)
    return *_no_none(given, grad_x, rows), sums


@torch.library.register_fake("torch_srelu::srelu_backward_fused", lib=_library)
def _(grad, second_grad, x, t_r, a_r, t_l, a_l, dim, need_params, z, mean, scale, shift, residual):
    given, channels = z if x is None else x, t_r.shape[0]
    sums = given.new_empty(0)
    if z is not None:
        sums = z.new_empty((2, z.shape[dim]), dtype=reference.compute_dtype(z))
    return *_fake_gradients(given, channels, True, 4 * need_params), sums


# ---- autograd ----


def backward(grad, x, params, dim, needs, bias):
    """`execution.backward` as an operator, which can be traced and differentiated."""
    return srelu_backward(grad, x, *params, dim, needs.input, needs.params, bias, needs.bias)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*(i for i in inputs if isinstance(i, Tensor)))
    ctx.options = [i for i in inputs if i is not None and not isinstance(i, Tensor)]


def _differentiate(ctx, grad):
    from .autograd import gradients  # which imports this module

    needs = ctx.needs_input_grad
    needs = (*needs[:5], *needs[7:])  # of saved tensors, which dim and frozen are not
    grads = gradients(backward, grad, ctx.saved_tensors, needs, *ctx.options)
    return (*grads[:5], None, None, *grads[5:])


def _differentiate_backward(ctx, u_x, u_rows):
    grad, x, t_r, a_r, t_l, a_l, *bias = ctx.saved_tensors
    dim, need_input, need_params, need_bias = ctx.options
    dtype = reference.compute_dtype(x)
    biased = execution.add_bias(x, bias[0], dim) if bias else x
    u_x = torch.zeros_like(x) if u_x is None or not need_input else u_x
    u_params = x.new_zeros((4, t_r.shape[0]), dtype=dtype)
    if u_rows is not None and need_params:
        u_params = u_rows[:4]
    if u_rows is not None and need_bias:  # its gradient is a sum of the input's
        u_x = u_x + reference.broadcast(biased.to(dtype), dim, u_rows[-1])[0].to(u_x.dtype)
    cotangents = (u_x, *u_params.unbind())
    grads = reference.srelu_double_backward(cotangents, grad, biased, (t_r, a_r, t_l, a_l), dim)
    of_bias = None
    if bias:
        of_bias = reference.over_channels(grads[1].to(dtype), dim).to(bias[0].dtype)
    return (*grads, None, None, None, of_bias, None)


for _name, _formula in {"srelu": _differentiate, "srelu_backward": _differentiate_backward}.items():
    torch.library.register_autograd(
        f"torch_srelu::{_name}", _formula, setup_context=_save, lib=_library
    )


# ---- batching: a batch of units is one unit with more channels ----


def _fold(x: Tensor, dim: int, channels: int) -> tuple[Tensor, int]:
    """(B, *shape) with its batch folded into the channel dim, and the index of that dim."""
    if channels == 1:  # shared by all channels: the batch itself is the channel dim
        return x, 0
    dim %= x.dim() - 1
    return x.movedim(0, dim).flatten(dim, dim + 1), dim


def _unfold(x: Tensor, dim: int, channels: int) -> Tensor:
    return x if channels == 1 else x.unflatten(dim, (-1, channels)).movedim(dim, 0)


def _batch_first(info, in_dims, tensors) -> list[Tensor]:
    return [
        t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
        for t, d in zip(tensors, in_dims, strict=True)
    ]


def _add_biases(info, in_dims, x: Tensor, bias: Tensor | None, dim: int) -> Tensor:
    """``x`` (B, *shape) with its batch of biases added."""
    if bias is None:
        return x
    (bias,) = _batch_first(info, in_dims, (bias,))
    shape = [1] * x.dim()
    shape[0], shape[dim if dim < 0 else dim + 1] = bias.shape
    return x + bias.to(x.dtype).view(shape)


def _batched(info, in_dims, x, t_r, a_r, t_l, a_l, dim, frozen, bias=None):
    x, *params = _batch_first(info, in_dims[:5], (x, t_r, a_r, t_l, a_l))
    x = _add_biases(info, in_dims[7:], x, bias, dim)
    channels = params[0].shape[1]
    x, dim = _fold(x, dim, channels)
    return _unfold(srelu(x, *(p.flatten() for p in params), dim, frozen), dim, channels), 0


def _batched_backward(info, in_dims, *arguments):
    grad, x, *params = _batch_first(info, in_dims[:6], arguments[:6])
    options: Any = (*arguments[6:], None, False)  # with the defaults of the last two
    dim, need_input, need_params, bias, need_bias = options[:5]
    x = _add_biases(info, in_dims[9:10], x, bias, dim)
    batch, channels = params[0].shape
    (grad, _), (x, folded) = _fold(grad, dim, channels), _fold(x, dim, channels)
    flat = (p.flatten() for p in params)
    grad_x, rows = srelu_backward(grad, x, *flat, folded, need_input or need_bias, need_params)
    if need_params:
        rows = rows.reshape(4, batch, channels)
    if need_bias:
        dtype = reference.compute_dtype(x)
        sums = reference.over_channels(grad_x.to(dtype), folded).reshape(1, batch, channels)
        rows = torch.cat([rows, sums]) if need_params else sums
    grad_x = _unfold(grad_x, folded, channels) if need_input else grad_x.new_empty(0)
    # What is not needed is an empty tensor, the same for the whole batch.
    return (grad_x, rows), (0 if need_input else None, 1 if need_params or need_bias else None)


torch.library.register_vmap("torch_srelu::srelu", _batched, lib=_library)
torch.library.register_vmap("torch_srelu::srelu_backward", _batched_backward, lib=_library)
