"""SReLU as a function: checks its arguments, then picks the road."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.jit import is_tracing  # type: ignore[attr-defined]
from torch.overrides import handle_torch_function, has_torch_function

from . import memory
from .ops import autograd as eager
from .ops import backends, cpp, reference
from .ops import custom_ops as registration
from .ops import execution as compute
from .ops import tensor_guards as alike

DTYPES = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})


def srelu(
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int = 1,
    *,
    bias: Tensor | None = None,
    frozen: bool = False,
) -> Tensor:
    """The S-shaped rectified linear unit, with parameters per channel.

        h(x) = x + (a_r - 1) * max(x - t_r, 0) + (1 - a_l) * max(t_l - x, 0)

    that is slope ``a_r`` right of ``t_r``, slope ``a_l`` left of ``t_l``, the identity between.

    Args:
        x: Input of any shape; float64, float32, bfloat16 or float16.
        t_r: Right threshold, one per channel: a 1-D tensor as long as ``x.shape[dim]``. Length 1
            means that all channels share it (then ``x`` may have any rank, 0 included).
        a_r: Slope beyond the right threshold, as long as ``t_r``.
        t_l: Left threshold, as long as ``t_r``.
        a_l: Slope beyond the left threshold, as long as ``t_r``.
        dim: The channel dimension of ``x``.
        bias: What a layer before would have added to ``x``, one value per channel: the result is
            that of ``x + bias``. On a GPU it is added for free, and summed for free in backward.
        frozen: The gradients of the four parameters are zeros, and cost nothing.

    Returns:
        A tensor with the shape, dtype and memory layout of ``x``.

    Example:
        >>> import torch
        >>> from torch_srelu.functional import srelu
        >>> x = torch.tensor([[-2.0, 0.5, 3.0]])
        >>> one = torch.ones(3)
        >>> srelu(x, t_r=one, a_r=0.5 * one, t_l=-one, a_l=0.1 * one)
        tensor([[-1.1000,  0.5000,  2.0000]])
    """
    learns = not (frozen and torch.is_grad_enabled())
    quick = cpp.compiled if learns and not torch.compiler.is_compiling() else None
    if quick is not None and backends.forced is None:
        try:
            y = quick.srelu(x, t_r, a_r, t_l, a_l, dim, bias)
        except RuntimeError:
            _refuse_nested(x)
            raise
        if y is None and memory.active():
            y = memory.noted(quick.srelu, x, t_r, a_r, t_l, a_l, dim, bias, True)
        if y is not None:
            return y
    tensors = (x, t_r, a_r, t_l, a_l) if bias is None else (x, t_r, a_r, t_l, a_l, bias)
    if has_torch_function(tensors):
        options = {"dim": dim, "bias": bias, "frozen": frozen}
        return handle_torch_function(srelu, tensors, *tensors[:5], **options)
    watched = _watched()
    call = None if watched else eager.remembered(x, t_r, a_r, t_l, a_l, dim, bias)
    if call is None:
        if not _fits(x, t_r, a_r, t_l, a_l, dim):
            check(x, t_r, a_r, t_l, a_l, dim)  # says what does not
        if bias is not None:
            check_bias(bias, x, dim)
            if bias.shape != t_r.shape:
                x = compute.add_bias(x, bias, dim)
                return srelu(x, t_r, a_r, t_l, a_l, dim, frozen=frozen)
        if watched or not (x.is_cuda or x.is_cpu) or not alike.ordinary(*tensors):
            return _in_operators(x, (t_r, a_r, t_l, a_l), bias, dim, frozen)
        call = eager.remember(x, t_r, a_r, t_l, a_l, dim, bias)
    if not torch.is_grad_enabled():
        if call is not None:
            return eager.forward(call, tensors, dim)
        x, t_r, a_r, t_l, a_l, bias = unwrap_dead_wrappers((x, t_r, a_r, t_l, a_l, bias))
        return compute.compute(x, t_r, a_r, t_l, a_l, dim, bias)
    if memory.active():
        return memory.noted(eager.srelu, x, t_r, a_r, t_l, a_l, dim, bias, frozen, call)
    return eager.srelu(x, t_r, a_r, t_l, a_l, dim, bias, frozen, call)


def _watched() -> bool:
    """Whether someone traces, transforms or intercepts what is computed now."""
    return (
        torch.compiler.is_compiling()
        or registration.exporting()
        or is_tracing()
        or registration.transformed()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._ops._len_torch_dispatch_stack_pre_dispatch() > 0
    )


def _in_operators(
    x: Tensor,
    params: tuple[Tensor, Tensor, Tensor, Tensor],
    bias: Tensor | None,
    dim: int,
    frozen: bool,
) -> Tensor:
    """SReLU for those who look on: as one operator, or where they need it in torch's own."""
    if registration.exporting() or is_tracing() or registration.transformed():
        t_r, a_r, t_l, a_l = map(_resting, params) if frozen else params
        return reference.srelu(compute.add_bias(x, bias, dim), t_r, a_r, t_l, a_l, dim)
    if bias is None:
        return registration.srelu(x, *params, dim, frozen)
    return registration.biased_srelu(x, *params, bias, dim, frozen)


def _resting(parameter: Tensor) -> Tensor:
    """The same values, with a gradient of zeros: `detach` alone would leave None."""
    everywhere = torch.ones_like(parameter, dtype=torch.bool)
    return torch.where(everywhere, parameter.detach(), parameter)


def _fits(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int) -> bool:
    """Whether `check` would pass, for the usual case: cheaper, since every call pays for it."""
    try:
        device, shape = x.device, t_r.shape
        return (
            not x.is_nested
            and x.dtype in DTYPES
            and t_r.dtype in DTYPES
            and a_r.dtype in DTYPES
            and t_l.dtype in DTYPES
            and a_l.dtype in DTYPES
            and device == t_r.device == a_r.device == t_l.device == a_l.device
            and len(shape) == 1
            and shape == a_r.shape == t_l.shape == a_l.shape
            and type(dim) is int
            and x.shape[dim : dim + 1 or None] == shape
        )
    except (AttributeError, TypeError):  # something is no tensor, or dim no int
        return False


def check(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int) -> None:
    """Raises TypeError or ValueError, before anything is computed, if the arguments do not fit."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, got {type(x).__name__}")
    _refuse_nested(x)
    if x.dtype not in DTYPES:
        raise TypeError(
            f"x must be float64, float32, bfloat16 or float16, got {x.dtype}; convert it first"
        )
    device = x.device
    for name, p in (("t_r", t_r), ("a_r", a_r), ("t_l", t_l), ("a_l", a_l)):
        if not isinstance(p, Tensor):
            raise TypeError(f"{name} must be a 1-D tensor, got {type(p).__name__}")
        if p.dtype not in DTYPES:
            raise TypeError(f"{name} must be a floating-point tensor, got {p.dtype}")
        if p.dim() != 1:
            raise ValueError(f"{name} must be 1-D, one value per channel, got {tuple(p.shape)}")
        if p.device != device:
            raise ValueError(f"{name} is on {p.device} but x is on {device}: move one of them")
        if p.shape != t_r.shape:
            raise ValueError(
                f"{name} has {p.shape[0]} values but t_r has {t_r.shape[0]}: "
                "all four parameters must be equally long"
            )
    if not isinstance(dim, int):
        raise TypeError(f"dim must be an int, got {type(dim).__name__}")
    channels, rank = t_r.shape[0], x.dim()
    if channels == 1:
        return  # one value for all channels: any rank, any dim
    if rank == 0:
        raise ValueError(
            f"x is a scalar, so it has no dim={dim} for {channels} channels; "
            "SReLU(1), parameters of length 1, takes it"
        )
    if not -rank <= dim < rank:
        raise ValueError(
            f"dim={dim} does not exist in x of shape {tuple(x.shape)}; "
            f"with {channels} channels, expected {-rank} <= dim < {rank}"
        )
    if x.shape[dim] != channels:
        raise ValueError(
            f"x has {x.shape[dim]} channels in dim={dim} (shape {tuple(x.shape)}) "
            f"but the parameters are for {channels}"
            + ("; for channels in the last dim, pass dim=-1" if x.shape[-1] == channels else "")
        )


def _refuse_nested(x: Tensor) -> None:
    if x.is_nested:
        raise TypeError(
            "x is a nested tensor: give SReLU what it holds. If its layout is torch.jagged, that "
            "is x.values(), and torch.nested.nested_tensor_from_jagged(y, x.offsets()) puts the "
            "result together; else each of x.unbind()"
        )


def check_bias(bias: Tensor, x: Tensor, dim: int) -> None:
    """Raises TypeError or ValueError if ``bias`` is not one value for each channel of ``x``."""
    if not isinstance(bias, Tensor):
        raise TypeError(f"bias must be a 1-D tensor, got {type(bias).__name__}")
    if bias.dtype not in DTYPES:
        raise TypeError(f"bias must be a floating-point tensor, got {bias.dtype}")
    if not -x.dim() <= dim < x.dim() or bias.shape != (x.shape[dim],):
        raise ValueError(
            f"bias must have one value for each channel in dim={dim} of x, whose shape is "
            f"{tuple(x.shape)}, got {tuple(bias.shape)}"
        )
    if bias.device != x.device:
        raise ValueError(f"bias is on {bias.device} but x is on {x.device}: move one of them")
