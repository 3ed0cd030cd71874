"""SReLU as PyTorch operators: ``torch.ops.torch_srelu.srelu`` and its differentiable backward.

Two doors lead to the same kernels. Eager calls on ordinary tensors go through `Fused`, an
autograd.Function, because it costs the host a quarter of what a custom operator does. Everything
that traces or intercepts (torch.compile, fake tensors, dispatch modes) goes through the operators.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import backends, layout, reference


def transformed() -> bool:
    """Whether forward-mode AD or a torch.func transform is at work.

    Neither can see into a custom operator (forward-mode would give zeros without a word), so they
    get the reference, which is made of operators that they know. Dynamo evaluates this while
    tracing, so it holds inside torch.compile too.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def exporting() -> bool:
    """Whether torch.export is at work, which should find plain operators and no custom one.

    Not torch.compiler.is_exporting(): torch 2.11 answers True to that in every torch.compile.
    """
    return torch.compiler._is_exporting_flag


# ---- the work, on real tensors ----


def compute(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int) -> Tensor:
    """SReLU by whichever execution serves ``x``."""
    kernels = backends.kernels(x)
    if kernels is None or x.numel() == 0:
        return _strided_as(x, reference.srelu(x, t_r, a_r, t_l, a_l, dim))
    x = layout.densify(x)
    return kernels.forward(x, (t_r, a_r, t_l, a_l), _view(x, t_r, dim))


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
) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of ``x`` and, stacked as (4, C) in the dtype of the arithmetic, the others.

    By whichever execution serves ``x``. What is not needed is None.
    """
    kernels = backends.kernels(x)
    x = layout.densify(x)
    if kernels is None or x.numel() == 0:
        grad_x, grads = _reference_backward(grad, x, t_r, a_r, t_l, a_l, dim)
        return _strided_as(x, grad_x) if need_input else None, grads if need_params else None
    grad = layout.like(grad, x)
    view = _view(x, t_r, dim)
    return kernels.backward(grad, x, (t_r, a_r, t_l, a_l), view, need_input, need_params)


def _reference_backward(grad, x, t_r, a_r, t_l, a_l, dim, *_) -> tuple[Tensor, Tensor]:
    grad_x, *grads = reference.srelu_backward(grad, x, t_r, a_r, t_l, a_l, dim)
    return grad_x, torch.stack([g.to(reference.compute_dtype(x)) for g in grads])


def _strided_as(x: Tensor, y: Tensor) -> Tensor:
    """``y`` with exactly the strides that the fake kernels promise."""
    promised = torch.empty_like(x)
    return y if y.stride() == promised.stride() else promised.copy_(y)


def _view(x: Tensor, t_r: Tensor, dim: int) -> layout.View:
    view = layout.view(x, t_r.shape[0], dim)
    assert view is not None, "densify left gaps"
    return view


# ---- eager ----


class Fused(torch.autograd.Function):
    """SReLU of ordinary tensors. Keeps the input, and nothing else of its size, for backward."""

    @staticmethod
    def forward(ctx, x, t_r, a_r, t_l, a_l, dim, frozen):
        ctx.save_for_backward(x, t_r, a_r, t_l, a_l)
        ctx.dim, ctx.frozen = dim, frozen
        return compute(x, t_r, a_r, t_l, a_l, dim)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        if torch.is_grad_enabled():
            return _backward(ctx, grad, srelu_backward)
        if not torch._C._has_storage(grad):
            # A batch of gradients in disguise (torch.autograd.grad with is_grads_batched): that
            # vmap is not torch.func's, and only operators that torch knows can see through it.
            return _backward(ctx, grad, _reference_backward)
        return _backward(ctx, grad, compute_backward)


def _backward(ctx, grad: Tensor, function) -> tuple[Tensor | None, ...]:
    """What autograd wants from SReLU: a gradient for every argument that needs one, else None."""
    x, *params = ctx.saved_tensors
    need_input, *need_params = ctx.needs_input_grad[:5]
    if ctx.frozen:
        # Zeros, not None: optimizers, DDP and gradient clipping then see parameters that rest.
        pairs = zip(params, need_params, strict=True)
        zeros = [torch.zeros_like(p) if need else None for p, need in pairs]
        if not need_input:
            return (None, *zeros, None, None)
        grad_x, _ = function(grad, x, *(p.detach() for p in params), ctx.dim, True, False)
        return (grad_x, *zeros, None, None)
    any_params = any(need_params)
    grad_x, stacked = function(grad, x, *params, ctx.dim, need_input, any_params)
    if not any_params:
        return (grad_x, None, None, None, None, None, None)
    grads = zip(stacked.unbind(), params, need_params, strict=True)
    cast = [g.to(p.dtype) if need else None for g, p, need in grads]
    return (grad_x if need_input else None, *cast, None, None)


# ---- the operators ----


@torch.library.custom_op("torch_srelu::srelu", mutates_args=())
def srelu(
    x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int, frozen: bool
) -> Tensor:
    _check_lengths(x, (t_r, a_r, t_l, a_l), dim)
    return compute(x, t_r, a_r, t_l, a_l, dim)


def _check_lengths(x: Tensor, params: tuple[Tensor, ...], dim: int) -> None:
    """The operators can be called past `functional.check`; kernels must not read past the end."""
    channels = params[0].numel()
    fits = channels == 1 or (-x.dim() <= dim < x.dim() and x.shape[dim] == channels)
    if not fits or any(p.shape != (channels,) for p in params):
        shapes = ", ".join(str(tuple(p.shape)) for p in params)
        raise ValueError(f"parameters of shapes {shapes} do not fit x {tuple(x.shape)}, dim={dim}")


@srelu.register_fake
def _(x, t_r, a_r, t_l, a_l, dim, frozen):
    return torch.empty_like(x)


@torch.library.custom_op("torch_srelu::srelu_backward", mutates_args=())
def srelu_backward(
    grad: Tensor,
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int,
    need_input: bool,
    need_params: bool,
) -> tuple[Tensor, Tensor]:
    _check_lengths(x, (t_r, a_r, t_l, a_l), dim)
    if grad.shape != x.shape or grad.dtype != x.dtype:
        raise ValueError(
            f"grad is {grad.dtype} of shape {tuple(grad.shape)}, expected that of x: "
            f"{x.dtype}, {tuple(x.shape)}"
        )
    grads = compute_backward(grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params)
    # An operator cannot return None: what is not needed is an empty tensor.
    return tuple(x.new_empty(0) if g is None else g for g in grads)  # type: ignore[return-value]


@srelu_backward.register_fake
def _(grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params):
    size = (4, t_r.shape[0]) if need_params else (0,)
    return (
        torch.empty_like(x) if need_input else x.new_empty(0),
        x.new_empty(size, dtype=reference.compute_dtype(x) if need_params else x.dtype),
    )


def _keep(ctx, inputs, output):
    *tensors, ctx.dim, ctx.frozen = inputs
    ctx.save_for_backward(*tensors)


def _autograd(ctx, grad):
    return _backward(ctx, grad, srelu_backward)


def _keep_backward(ctx, inputs, output):
    *tensors, ctx.dim, ctx.need_input, ctx.need_params = inputs
    ctx.save_for_backward(*tensors)


def _autograd_backward(ctx, u_x, u_params):
    grad, x, t_r, a_r, t_l, a_l = ctx.saved_tensors
    if u_x is None or not ctx.need_input:
        u_x = torch.zeros_like(x)
    if u_params is None or not ctx.need_params:
        u_params = x.new_zeros((4, t_r.shape[0]), dtype=reference.compute_dtype(x))
    cotangents = (u_x, *u_params.unbind())
    grads = reference.srelu_double_backward(cotangents, grad, x, t_r, a_r, t_l, a_l, ctx.dim)  # type: ignore[arg-type]
    return (*grads, None, None, None)


srelu.register_autograd(_autograd, setup_context=_keep)
srelu_backward.register_autograd(_autograd_backward, setup_context=_keep_backward)


# ---- batching: a batch of units is one unit with more channels ----


def _fold(x: Tensor, dim: int, channels: int) -> tuple[Tensor, int]:
    """(B, *shape) with its batch folded into the channel dim, and the place of that dim."""
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


@srelu.register_vmap
def _(info, in_dims, x, t_r, a_r, t_l, a_l, dim, frozen):
    x, *params = _batch_first(info, in_dims[:5], (x, t_r, a_r, t_l, a_l))
    channels = params[0].shape[1]
    x, dim = _fold(x, dim, channels)
    return _unfold(srelu(x, *(p.flatten() for p in params), dim, frozen), dim, channels), 0


@srelu_backward.register_vmap
def _(info, in_dims, grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params):
    grad, x, *params = _batch_first(info, in_dims[:6], (grad, x, t_r, a_r, t_l, a_l))
    batch, channels = params[0].shape
    (grad, _), (x, dim) = _fold(grad, dim, channels), _fold(x, dim, channels)
    flat = (p.flatten() for p in params)
    grad_x, grads = srelu_backward(grad, x, *flat, dim, need_input, need_params)
    if need_input:
        grad_x = _unfold(grad_x, dim, channels)
    if need_params:
        grads = grads.reshape(4, batch, channels)
    # what is not needed is an empty tensor, the same for the whole batch
    return (grad_x, grads), (0 if need_input else None, 1 if need_params else None)
