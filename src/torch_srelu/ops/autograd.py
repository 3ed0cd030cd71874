"""SReLU of ordinary tensors, called eagerly: autograd's cheapest door, and a short way behind it.

An autograd.Function costs the host a quarter of what a custom operator does. And kernels are done
with a small tensor sooner than Python is with looking at it: so what follows from shapes, strides,
dtypes and devices alone is found out once, and remembered. Where ``native/eager.cpp`` was compiled,
it is taught what is remembered of calls on a GPU, and these need no Python at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import backends, cpp, layout
from . import custom_ops as registration
from . import execution as compute
from .tensor_guards import Guard, guard, ordinary, plain

if TYPE_CHECKING:
    from .cpu import cpu_backend as cpu
    from .triton import triton_backend as triton

    Call = cpu.Call | triton.Call

MOST = 4096  # calls that are remembered, by what is cheap to look at
ALIKE = 16  # of which so many may differ in the rest

_calls: dict[tuple, list[tuple[Guard, Call]]] = {}
_NONE = (None,) * 9  # for the arguments of `Fused` that have no gradient
_ALL = {n: (True,) * n + (False,) * (9 - n) for n in (5, 6)}  # ctx.needs_input_grad of these


def remembered(
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int,
    bias: Tensor | None = None,
) -> Call | None:
    """What is known of calls like this one; None if there was none. If there was, this one fits."""
    try:
        calls = _calls.get(
            (backends.forced, x.get_device(), x.shape, type(dim), dim, bias is None), ()
        )
    except (AttributeError, TypeError, RuntimeError):  # x is no tensor or nested, or dim no number
        return None
    for seen, call in calls:
        if bias is None:
            if seen.check(x, t_r, a_r, t_l, a_l):
                return call
        elif seen.check(x, t_r, a_r, t_l, a_l, bias):
            return call
    return None


def remember(
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int,
    bias: Tensor | None = None,
) -> Call | None:
    """Notes a call whose arguments fit, if its kernels have a short way."""
    params = (t_r, a_r, t_l, a_l)
    given = (x, *params) if bias is None else (x, *params, bias)
    kernels = backends.kernels(x) if x.is_cuda or x.is_cpu else None
    if kernels is None or not x.numel() or not plain(*given):
        return None
    if bias is not None and not kernels.ADDS_BIAS:
        return None
    view = layout.view(x, t_r.shape[0], dim) if all(t.is_contiguous() for t in given[1:]) else None
    seen = guard(*given)
    if view is None or seen is None:
        return None
    if len(_calls) >= MOST:
        _calls.clear()
    key = (backends.forced, x.get_device(), x.shape, type(dim), dim, bias is None)
    calls = _calls.setdefault(key, [])
    call = kernels.Call(x, params, view, *given[5:])
    calls.append((seen, call))
    del calls[:-ALIKE]
    return call


class Fused(torch.autograd.Function):
    """SReLU of ordinary tensors. Keeps the input, and nothing else of its size, for backward."""

    @staticmethod
    def forward(ctx, x, t_r, a_r, t_l, a_l, bias, dim, frozen, call):
        ctx.dim, ctx.frozen, ctx.call = dim, frozen, None if frozen else call
        if bias is None:
            ctx.save_for_backward(x, t_r, a_r, t_l, a_l)
        else:
            ctx.save_for_backward(x, t_r, a_r, t_l, a_l, bias)
        if call is not None:
            return call.forward(x, t_r, a_r, t_l, a_l, bias)
        return compute.compute(x, t_r, a_r, t_l, a_l, dim, bias)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        saved, needs, call = ctx.saved_tensors, ctx.needs_input_grad, ctx.call
        plainly = call is not None and needs == _ALL[len(saved)]
        if plainly and not (torch.is_grad_enabled() or _watched()):
            grad = _laid_out(grad, saved[0])
        else:
            call = None
        if call is not None and call.takes(grad, *saved):
            grads = call.backward(grad, *saved)
            if cpp.compiled is not None and call.taught < 2:
                _teach(call, saved, ctx.dim, backward=True)
        else:
            grads = backward(grad, saved, needs, ctx.dim, ctx.frozen)
        return grads + _NONE[len(saved) :]


def backward(
    grad: Tensor, saved: Sequence[Tensor], needs: Sequence[bool], dim: int, frozen: bool = False
) -> tuple[Tensor | None, ...]:
    """The gradients of the saved tensors that need one, whatever is asked for."""
    # Tensors can change behind autograd's back (``p.data = ...``), and kernels read what they are
    # told to read.
    registration.check_lengths(saved[0], tuple(saved[1:]), dim)
    registration.check_gradient(grad, saved[0])
    function = compute.compute_backward
    if registration.transformed():
        function = _known_to_torch
    elif torch.is_grad_enabled() or _watched():
        function = registration.differentiable
    elif not _in_memory(grad):
        function = _known_to_torch
    return registration.gradients(function, grad, saved, needs, dim, frozen)


def _watched() -> bool:
    """Whether someone transforms or intercepts this backward pass."""
    return registration.transformed() or torch._C._len_torch_dispatch_stack() > 0


def _in_memory(grad: Tensor) -> bool:
    """Whether kernels can read it.

    Not a batch of gradients in disguise (torch.autograd.grad with is_grads_batched), whose vmap is
    not torch.func's, or another tensor that only operators of torch see through.
    """
    return torch._C._has_storage(grad) and ordinary(grad) and not grad._is_zerotensor()


def _laid_out(grad: Tensor, x: Tensor) -> Tensor:
    """``grad`` in the layout of ``x``, which kernels need; a mean over positions gives another."""
    if not _in_memory(grad) or grad.shape != x.shape or grad.stride() == x.stride():
        return grad
    return layout.like(grad, x)


def forward(call: Call, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """SReLU where nobody wants gradients; ``call`` is what is remembered of its like.

    Args:
        call: From `remembered` or `remember`.
        tensors: The input, its parameters and perhaps a bias.
        dim: The channel dimension.
    """
    y = call.forward(*tensors)
    if cpp.compiled is not None and not call.taught:
        _teach(call, tensors, dim, backward=False)
    return y


def _teach(call: Call, tensors: Sequence[Tensor], dim: int, backward: bool) -> None:
    """Tells eager.cpp of calls with tensors like these, once their kernels are compiled.

    It may refuse, when it knows very many kinds: then calls of this one stay in Python.
    """
    launches = call.launches(backward)
    if launches is not None:
        bias = tensors[5] if tensors[5:] else None
        cpp.compiled.learn(*tensors[:5], dim, bias, *launches)
        call.taught = 1 + backward


if cpp.compiled is not None:
    cpp.compiled.set_backward(backward)


# Function.apply, less what it does for torch.func (which does not come here), at half its price.
_apply = super(torch.autograd.Function, Fused).apply  # type: ignore[misc]


def srelu(
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int,
    bias: Tensor | None,
    frozen: bool,
    call: Call | None,
) -> Tensor:
    """SReLU of ordinary tensors, for autograd; ``call`` is what is remembered of its like."""
    apply = Fused.apply if call is None else _apply
    return apply(x, t_r, a_r, t_l, a_l, bias, dim, frozen, call)  # type: ignore[return-value]


def _known_to_torch(grad, x, t_r, a_r, t_l, a_l, dim, *needs):
    """The gradients by operators of torch's own."""
    return compute.after_bias(
        compute.reference_backward, grad, x, (t_r, a_r, t_l, a_l), dim, *needs
    )
