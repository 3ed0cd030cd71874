"""SReLU of ordinary tensors, called eagerly: autograd's cheapest door, and a short way behind it.

An autograd.Function costs the host a quarter of what a custom operator does. And a GPU is done with
a small tensor sooner than Python is with looking at it: so what follows from shapes, strides,
dtypes and devices alone is found out once, and remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import backends, compute, layout, registration

if TYPE_CHECKING:
    from .triton import Call

MOST = 4096  # kinds of calls that are remembered

_ORDINARY = frozenset({Tensor, torch.nn.Parameter})
_calls: dict[tuple, Call] = {}


def ordinary(*tensors: Tensor) -> bool:
    """Whether the tensors are of no class that wants to see what is done with them."""
    return _ORDINARY.issuperset(map(type, tensors))


def remembered(
    x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int
) -> Call | None:
    """What is known of calls like this one; None if there was none. If there was, this one fits."""
    try:
        if not _remember(x):
            return None
        return _calls.get(_kind(x, t_r, a_r, t_l, a_l, dim))
    except (AttributeError, TypeError):  # something is no tensor, or dim no number
        return None


def remember(
    x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int
) -> Call | None:
    """Notes a call whose arguments fit, if its kernels have a short way."""
    params = (t_r, a_r, t_l, a_l)
    if not (_remember(x) and ordinary(x, *params) and x.numel()):
        return None
    stored = all(map(torch._C._has_storage, (x, *params)))
    plain = not (x.is_neg() or x._is_zerotensor())
    dense = plain and all(p.is_contiguous() and not p.is_neg() for p in params)
    view = layout.view(x, t_r.shape[0], dim) if stored and dense else None
    if view is None:
        return None
    if len(_calls) >= MOST:
        _calls.clear()
    from .triton import Call  # the only kernels that have one

    call = _calls[_kind(x, *params, dim)] = Call(x, params, view)
    return call


def _remember(x: Tensor) -> bool:
    """Whether the kernels for ``x`` have a short way."""
    kernels = backends.kernels(x) if x.is_cuda or x.is_cpu else None
    return kernels is not None and kernels.REMEMBERS


def _kind(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int) -> tuple:
    """All that decides whether a call can be made, and how. Flat, and one look at each: it is hot.

    Without storage are tensors that stand for others, whose classes do not tell.
    """
    stored = torch._C._has_storage
    return (
        type(x),
        stored(x),
        x.shape,
        x.stride(),
        x.dtype,
        x.get_device(),
        x.is_meta,
        x.is_neg(),
        x._is_zerotensor(),
        type(dim),
        dim,
        type(t_r),
        stored(t_r),
        t_r.shape,
        t_r.stride(),
        t_r.dtype,
        t_r.get_device(),
        t_r.is_meta,
        t_r.is_neg(),
        type(a_r),
        stored(a_r),
        a_r.shape,
        a_r.stride(),
        a_r.dtype,
        a_r.get_device(),
        a_r.is_meta,
        a_r.is_neg(),
        type(t_l),
        stored(t_l),
        t_l.shape,
        t_l.stride(),
        t_l.dtype,
        t_l.get_device(),
        t_l.is_meta,
        t_l.is_neg(),
        type(a_l),
        stored(a_l),
        a_l.shape,
        a_l.stride(),
        a_l.dtype,
        a_l.get_device(),
        a_l.is_meta,
        a_l.is_neg(),
    )


class Fused(torch.autograd.Function):
    """SReLU of ordinary tensors. Keeps the input, and nothing else of its size, for backward."""

    @staticmethod
    def forward(ctx, x, t_r, a_r, t_l, a_l, bias, dim, frozen, call):
        ctx.dim, ctx.frozen, ctx.call = dim, frozen, call
        if bias is not None:
            ctx.save_for_backward(x, t_r, a_r, t_l, a_l, bias)
            return compute.compute(x, t_r, a_r, t_l, a_l, dim, bias)
        ctx.save_for_backward(x, t_r, a_r, t_l, a_l)
        if call is not None:
            return call.forward(x, t_r, a_r, t_l, a_l)
        return compute.compute(x, t_r, a_r, t_l, a_l, dim)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        saved, needs, function = ctx.saved_tensors, ctx.needs_input_grad, compute.compute_backward
        if torch.is_grad_enabled():
            function = registration.differentiable
        elif not (torch._C._has_storage(grad) and ordinary(grad)) or grad._is_zerotensor():
            # A batch of gradients in disguise (torch.autograd.grad with is_grads_batched), whose
            # vmap is not torch.func's, or another tensor that only operators of torch see through.
            function = _known_to_torch
        elif needs[0] and needs[1] and needs[2] and needs[3] and needs[4] and not ctx.frozen:
            call = ctx.call
            if call is not None and call.takes(grad, *saved):
                return (*call.backward(grad, *saved), None, None, None, None)
        return (*registration.gradients(ctx, saved, grad, function), None)


# Function.apply, less what it does for torch.func (which does not come here), at half its price.
_apply = super(torch.autograd.Function, Fused).apply  # type: ignore[misc]


def srelu(
    x: Tensor,
    params: tuple[Tensor, ...],
    bias: Tensor | None,
    dim: int,
    frozen: bool,
    call: Call | None,
) -> Tensor:
    """SReLU of ordinary tensors, for autograd; ``call`` is what is remembered of its like."""
    if call is not None:
        return _apply(x, *params, None, dim, frozen, call)
    return Fused.apply(x, *params, bias, dim, frozen, None)  # type: ignore[return-value]


def _known_to_torch(grad, x, t_r, a_r, t_l, a_l, dim, *needs):
    """The gradients by operators of torch's own."""
    return compute.after_bias(
        compute.reference_backward, grad, x, (t_r, a_r, t_l, a_l), dim, *needs
    )
