"""SReLU called eagerly: one autograd.Function around kernels, which costs less than an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import _torch_compat
from . import custom_ops, execution, layout, recompute
from .arguments import Needs, Parameters, check_gradient, check_lengths
from .tracing import is_readable, tracing

if TYPE_CHECKING:
    from .call_cache import AnyPreparedCall

_ALL_NEEDED = {n: (True,) * n + (False,) * (9 - n) for n in (5, 6)}  # ctx.needs_input_grad


class SReLUFunction(torch.autograd.Function):
    """SReLU of ordinary tensors. Saves the input, and nothing else of its size, for backward."""

    @staticmethod
    def forward(ctx, x, t_r, a_r, t_l, a_l, bias, dim, frozen, call):
        ctx.dim, ctx.frozen, ctx.call = dim, frozen, None if frozen else call
        if bias is None:
            ctx.save_for_backward(x, t_r, a_r, t_l, a_l)
        else:
            ctx.save_for_backward(x, t_r, a_r, t_l, a_l, bias)
        if call is not None:
            return call.forward(x, t_r, a_r, t_l, a_l, bias)
        return execution.forward(x, Parameters(t_r, a_r, t_l, a_l), dim, bias)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        saved, needs, call = ctx.saved_tensors, ctx.needs_input_grad, ctx.call
        seen_by = tracing()
        others = (None,) * (9 - len(saved))
        direct = seen_by is None and not torch.is_grad_enabled()
        if direct and call is not None and needs == _ALL_NEEDED[len(saved)]:
            x = saved[0]  # kernels need its layout; the gradient of a mean has another
            if grad.shape == x.shape and grad.stride() != x.stride() and is_readable(grad):
                grad = layout.like(grad, x)
            if call.takes(grad, *saved):
                return call.backward(grad, *saved) + others
        # ``p.data = ...`` may have replaced a tensor, and kernels do not look at lengths.
        check_lengths(saved[0], saved[1:], ctx.dim)
        check_gradient(grad, saved[0])
        function = execution.backward
        if seen_by == "plain operators":
            function = execution.plain_backward
        elif not direct:
            function = custom_ops.backward
        elif not is_readable(grad.resolve_neg()):
            function = execution.plain_backward
        return gradients(function, grad, saved, needs, ctx.dim, ctx.frozen) + others


# Function.apply without its part for torch.func, which is never active here, at half the host time.
_apply = _torch_compat.function_apply(SReLUFunction)


def srelu(
    x: Tensor,
    params: Parameters,
    dim: int,
    bias: Tensor | None,
    frozen: bool,
    call: AnyPreparedCall | None,
) -> Tensor:
    """SReLU of ordinary tensors, for autograd; ``call`` is the prepared call of its signature."""
    if call is None:
        apply = SReLUFunction.apply
    elif torch.is_grad_enabled():
        apply = _apply
    else:
        return call.forward(x, *params, bias)
    if recompute.is_active():
        return recompute.recorded(apply, x, params, dim, bias, frozen, call)
    return apply(x, *params, bias, dim, frozen, call)  # type: ignore[return-value]


def gradients(
    function, grad: Tensor, saved: Sequence[Tensor], needs: Sequence[bool], dim: int, frozen: bool
) -> tuple[Tensor | None, ...]:
    """A gradient for every one of the ``saved`` tensors that needs one, else None."""
    x, t_r, a_r, t_l, a_l, *rest = saved
    bias = rest[0] if rest else None
    params = Parameters(t_r, a_r, t_l, a_l)
    need = Needs(needs[0], not frozen and any(needs[1:5]), bool(rest) and needs[5])
    if frozen:
        params = Parameters(*(p.detach() for p in params))
    grad_x = rows = None
    if any(need):
        grad_x, rows = function(grad, x, params, dim, need, bias)
    owners = (*params, bias)
    grads: list[Tensor | None] = [None] * 5
    if rows is not None and (need.params or need.bias):
        for place, row in enumerate(rows.unbind(), start=0 if need.params else 4):
            owner = owners[place]
            if needs[1 + place] and owner is not None:
                grads[place] = row if row.dtype == owner.dtype else row.to(owner.dtype)
    if frozen:
        # Zeros, not None: so optimizers, DDP and gradient clipping see them as parameters as usual.
        pairs = zip(params, needs[1:5], strict=True)
        grads[:4] = [torch.zeros_like(p) if wanted else None for p, wanted in pairs]
    return (grad_x if need.input else None, *grads)[: len(saved)]
