"""SReLU as PyTorch operators: ``torch.ops.torch_srelu.srelu`` and its differentiable backward.

For everything that traces or intercepts: torch.compile, fake tensors, dispatch modes. Eager calls
on ordinary tensors have a door of their own (`eager`), to the same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import execution as compute
from . import reference
from .batch_norm import Norm
from .inductor import inductor_patterns as inductor


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


# ---- gradients, as autograd wants them ----


def gradients(
    function, grad: Tensor, saved: Sequence[Tensor], needs: Sequence[bool], dim: int, frozen: bool
) -> tuple[Tensor | None, ...]:
    """A gradient for every one of the ``saved`` tensors that needs one, else None."""
    x, t_r, a_r, t_l, a_l, *rest = saved
    bias = rest[0] if rest else None
    params = (t_r, a_r, t_l, a_l)
    need_input, need_bias = needs[0], bool(rest) and needs[5]
    need_params = not frozen and (needs[1] or needs[2] or needs[3] or needs[4])
    if frozen:
        params = tuple(p.detach() for p in params)
    grad_x = rows = None
    if need_input or need_params or need_bias:
        grad_x, rows = function(grad, x, *params, dim, need_input, need_params, bias, need_bias)
    grads: list[Tensor | None] = [None, None, None, None, None]
    if rows is not None and (need_params or need_bias):
        place = 0 if need_params else 4
        for row in rows.unbind():
            owner = params[place] if place < 4 else bias
            if needs[1 + place] and owner is not None:
                grads[place] = row if row.dtype == owner.dtype else row.to(owner.dtype)
            place += 1
    if frozen:
        # Zeros, not None: optimizers, DDP and gradient clipping then see parameters that rest.
        pairs = zip(params, needs[1:5], strict=True)
        grads[:4] = [torch.zeros_like(p) if need else None for p, need in pairs]
    return (grad_x if need_input else None, *grads)[: len(saved)]


def differentiable(grad, x, t_r, a_r, t_l, a_l, dim, *needs):
    """The gradients as functions that can be differentiated in their turn."""
    return compute.after_bias(srelu_backward, grad, x, (t_r, a_r, t_l, a_l), dim, *needs)


# ---- the operators ----

_library = torch.library.Library("torch_srelu", "FRAGMENT")


def _operator(function):
    """``function`` as an operator of its name, and as a bare one for compiled code.

    What torch.compile has made is past autograd when it calls an operator, and past all else that
    torch looks after where a user calls one: to the host, the bare one costs half as much.
    """
    name, bare = function.__name__, f"{function.__name__}_bare"
    made = torch.library.custom_op(f"torch_srelu::{name}", mutates_args=())(function)
    usual = getattr(torch.ops.torch_srelu, name).default
    types = str(usual._schema).partition("(")[2]
    _library.define(f"{bare}({types}", tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(bare, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torch_srelu::{bare}", usual, lib=_library)
    inductor.BARE[usual] = getattr(torch.ops.torch_srelu, bare).default
    return made


@_operator
def srelu(
    x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int, frozen: bool
) -> Tensor:
    check_lengths(x, (t_r, a_r, t_l, a_l), dim)
    return compute.compute(x, t_r, a_r, t_l, a_l, dim)


def check_lengths(x: Tensor, params: tuple[Tensor, ...], dim: int) -> None:
    """The operators can be called past `functional.check`; kernels must not read past the end."""
    channels = params[0].numel()
    fits = channels == 1 or (-x.dim() <= dim < x.dim() and x.shape[dim] == channels)
    if not fits or any(p.shape != (channels,) for p in params):
        shapes = ", ".join(str(tuple(p.shape)) for p in params)
        has_dim = -x.dim() <= dim < x.dim()
        expected = f"{x.shape[dim]} values each, or 1" if has_dim else "1 value each"
        raise ValueError(
            f"parameters of shapes {shapes} do not fit x {tuple(x.shape)}, dim={dim}: "
            f"expected {expected}"
        )


@srelu.register_fake
def _(x, t_r, a_r, t_l, a_l, dim, frozen):
    inductor.teach()
    return torch.empty_like(x)


@_operator
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
    check_lengths(x, (t_r, a_r, t_l, a_l), dim)
    check_gradient(grad, x)
    grads = compute.compute_backward(grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params)
    return _no_none(x, grads)


def check_gradient(grad: Tensor, x: Tensor) -> None:
    if grad.shape != x.shape or grad.dtype != x.dtype:
        raise ValueError(
            f"grad is {grad.dtype} of shape {tuple(grad.shape)}, expected that of x: "
            f"{x.dtype}, {tuple(x.shape)}"
        )


def _no_none(x: Tensor, grads: tuple[Tensor | None, Tensor | None]) -> tuple[Tensor, Tensor]:
    """An operator cannot return None: what is not needed is an empty tensor."""
    grad_x, rows = grads
    return x.new_empty(0) if grad_x is None else grad_x, x.new_empty(0) if rows is None else rows


@srelu_backward.register_fake
def _(grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params):
    return _fake_gradients(x, t_r.shape[0], need_input, 4 * need_params)


@_operator
def srelu_backward_joined(
    grad: Tensor,
    more: Tensor | None,
    x: Tensor | None,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int,
    need_params: bool,
    z: Tensor | None,
    mean: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    residual: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`srelu_backward` with what `inductor` finds beside it in a network.

    The gradient is ``grad + more``, if there is more. ``z`` and what follows are a `joined.Norm`;
    with ``scale`` there is no ``x``, which is then its output. Its moments are the third result.
    """
    params, given = (t_r, a_r, t_l, a_l), z if x is None else x
    made = z is not None and scale is not None and shift is not None
    if given is None or made is not (x is None) or (z is None) is not (mean is None):
        raise ValueError("give x, or else z with mean, scale and shift; beside x, z with its mean")
    check_lengths(given, params, dim)
    for tensor in (grad, more, z, residual):
        if tensor is not None:
            check_gradient(tensor, given)
    if z is None or mean is None:
        grads = compute.compute_backward(grad, given, *params, dim, True, need_params, more=more)
        return *_no_none(given, grads), given.new_empty(0)
    norm = Norm(z, mean, scale, shift, residual)
    norm.check_lengths(dim)
    grad_x, rows, moments = compute.compute_backward_joined(
        grad, more, x, params, dim, need_params, norm
    )
    return *_no_none(given, (grad_x, rows)), moments


@srelu_backward_joined.register_fake
def _(grad, more, x, t_r, a_r, t_l, a_l, dim, need_params, z, mean, scale, shift, residual):
    given, channels = z if x is None else x, t_r.shape[0]
    moments = given.new_empty(0)
    if z is not None:
        moments = z.new_empty((2, z.shape[dim]), dtype=reference.compute_dtype(z))
    return *_fake_gradients(given, channels, True, 4 * need_params), moments


def _fake_gradients(x: Tensor, channels: int, need_input: bool, rows: int):
    dtype = reference.compute_dtype(x)
    return (
        torch.empty_like(x) if need_input else x.new_empty(0),
        x.new_empty((rows, channels), dtype=dtype) if rows else x.new_empty(0),
    )


@_operator
def biased_srelu(
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    bias: Tensor,
    dim: int,
    frozen: bool,
) -> Tensor:
    check_lengths(x, (t_r, a_r, t_l, a_l, bias), dim)
    return compute.compute(x, t_r, a_r, t_l, a_l, dim, bias)


@biased_srelu.register_fake
def _(x, t_r, a_r, t_l, a_l, bias, dim, frozen):
    inductor.teach()
    return torch.empty_like(x)


@_operator
def biased_srelu_backward(
    grad: Tensor,
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int,
    need_input: bool,
    need_params: bool,
    bias: Tensor,
    need_bias: bool,
) -> tuple[Tensor, Tensor]:
    check_lengths(x, (t_r, a_r, t_l, a_l, bias), dim)
    check_gradient(grad, x)
    params = (t_r, a_r, t_l, a_l)
    grads = compute.compute_backward(
        grad, x, *params, dim, need_input, need_params, bias, need_bias
    )
    return _no_none(x, grads)


@biased_srelu_backward.register_fake
def _(grad, x, t_r, a_r, t_l, a_l, dim, need_input, need_params, bias, need_bias):
    return _fake_gradients(x, t_r.shape[0], need_input, 4 * need_params + need_bias)


def _keep(ctx, inputs, output):
    *tensors, ctx.dim, ctx.frozen = inputs
    ctx.save_for_backward(*tensors)


def _autograd(ctx, grad, function=differentiable):
    about = ctx.saved_tensors, ctx.needs_input_grad, ctx.dim, ctx.frozen
    return (*gradients(function, grad, *about), None, None)


def _autograd_biased(ctx, grad):
    return _autograd(
        ctx, grad, differentiable if torch.is_grad_enabled() else biased_srelu_backward
    )


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
biased_srelu.register_autograd(_autograd_biased, setup_context=_keep)


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
