"""The definition of SReLU, in plain torch, which every backend is tested against.

    h(x) = x + (a_r - 1) * max(x - t_r, 0) + (1 - a_l) * max(t_l - x, 0)

With R = [x >= t_r] and L = [x <= t_l] this is, region by region, ``slope * x + intercept``:

    region      slope              intercept
    neither     1                  0
    R           a_r                t_r (1 - a_r)
    L           a_l                t_l (1 - a_l)
    both        a_l + (a_r - 1)    t_r (1 - a_r) + t_l (1 - a_l)

For t_l <= t_r this is Eq. 7 of the paper; for t_l > t_r ("crossed", which training does produce)
it stays continuous, where the chain of cases in the paper would jump. Evaluated by region, no large
terms cancel in the tails, and with a_r = 1 and t_l = 0 it is a leaky ReLU to the last bit (but for
the sign of zero).

Arithmetic is in float64 for float64 input and in float32 for everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor


class Regions(NamedTuple):
    """The region of each element and the line there; all broadcast to the input."""

    right: Tensor
    left: Tensor
    slope: Tensor
    intercept: Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype of the arithmetic for ``x``."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def srelu(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int) -> Tensor:
    """SReLU with one parameter per index of ``dim``, or one for all (length 1).

    Differentiable by torch to any order and in both modes; exports to plain operators.
    """
    v = x.to(compute_dtype(x))
    _, _, slope, intercept = regions(v, *broadcast(v, dim, t_r, a_r, t_l, a_l))
    # A flat tail is flat at infinity too, and 0 * inf is NaN. The infinity is replaced before the
    # product, not after: `where` behind it would send 0 * inf into the gradient of the slope.
    v = torch.where((slope == 0) & torch.isinf(v), 0.0, v)
    return (slope * v + intercept).to(x.dtype)


def srelu_backward(
    grad: Tensor, x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int
) -> tuple[Tensor, ...]:
    """Gradients for (x, t_r, a_r, t_l, a_l): Eq. 9 and 10 of the paper, ties included.

    dh/dx = slope, dh/dt = [in tail] (1 - a), dh/da = [in tail] (x - t), summed over the channel.
    """
    params = (t_r, a_r, t_l, a_l)
    g, v = grad.to(compute_dtype(x)), x.to(compute_dtype(x))
    bt_r, ba_r, bt_l, ba_l = broadcast(v, dim, *params)
    right, left, slope, _ = regions(v, bt_r, ba_r, bt_l, ba_l)
    per_element = (
        torch.where(right, g, 0.0) * (1 - ba_r),
        torch.where(right, g * (v - bt_r), 0.0),
        torch.where(left, g, 0.0) * (1 - ba_l),
        torch.where(left, g * (v - bt_l), 0.0),
    )
    return ((g * slope).to(x.dtype), *map(_reduce, per_element, params, repeat(dim)))


def srelu_double_backward(
    cotangents: Sequence[Tensor], grad: Tensor, x: Tensor, params: Sequence[Tensor], dim: int
) -> tuple[Tensor, ...]:
    """Gradients of `srelu_backward` for (grad, x, t_r, a_r, t_l, a_l).

    ``cotangents`` belong to its five outputs. h is linear in x, and in each parameter with the
    others held, so only the mixed terms x-a and t-a survive.
    """
    dtype = compute_dtype(x)
    g, v, u_x = grad.to(dtype), x.to(dtype), cotangents[0].to(dtype)
    bt_r, ba_r, bt_l, ba_l = broadcast(v, dim, *params)
    u_tr, u_ar, u_tl, u_al = broadcast(v, dim, *cotangents[1:])
    right, left, slope, _ = regions(v, bt_r, ba_r, bt_l, ba_l)
    d_grad = (
        u_x * slope
        + torch.where(right, u_tr * (1 - ba_r) + u_ar * (v - bt_r), 0.0)
        + torch.where(left, u_tl * (1 - ba_l) + u_al * (v - bt_l), 0.0)
    )
    d_x = g * (torch.where(right, u_ar, 0.0) + torch.where(left, u_al, 0.0))
    per_element = (
        torch.where(right, -g * u_ar, 0.0),
        torch.where(right, g * (u_x - u_tr), 0.0),
        torch.where(left, -g * u_al, 0.0),
        torch.where(left, g * (u_x - u_tl), 0.0),
    )
    sums = map(_reduce, per_element, params, repeat(dim))
    return (d_grad.to(grad.dtype), d_x.to(x.dtype), *sums)


def regions(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor) -> Regions:
    """The table at the top of this file, for parameters that broadcast against ``x``."""
    right, left = x >= t_r, x <= t_l
    i_r, i_l = t_r * (1 - a_r), t_l * (1 - a_l)
    slope = torch.where(
        left, torch.where(right, a_l + (a_r - 1), a_l), torch.where(right, a_r, 1.0)
    )
    intercept = torch.where(left, torch.where(right, i_r + i_l, i_l), torch.where(right, i_r, 0.0))
    return Regions(right, left, slope, intercept)


def broadcast(x: Tensor, dim: int, *params: Tensor) -> tuple[Tensor, ...]:
    """1-D parameters, shaped to lie along ``dim`` of ``x`` and in its dtype."""
    shape = [1] * x.dim()
    if params[0].shape[0] != 1:
        shape[dim] = -1
    return tuple(p.to(x.dtype).reshape(shape) for p in params)


def _reduce(per_element: Tensor, param: Tensor, dim: int) -> Tensor:
    """The sum over everything but the channel, in the parameter's shape and dtype."""
    if param.shape[0] == 1:
        return per_element.sum().reshape(1).to(param.dtype)
    return over_channels(per_element, dim).to(param.dtype)


def over_channels(per_element: Tensor, dim: int) -> Tensor:
    """The sum over everything but ``dim``."""
    others = [d for d in range(per_element.dim()) if d != dim % per_element.dim()]
    return per_element.sum(others) if others else per_element
