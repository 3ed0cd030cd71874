"""Any dense tensor, of any rank and memory format, seen as (outer, C, inner)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class View(NamedTuple):
    """Sizes of a dense tensor in memory order: element (o, c, i) is at (o * C + c) * inner + i."""

    outer: int
    channels: int
    inner: int


def view(x: Tensor, channels: int, dim: int) -> View | None:
    """The (outer, C, inner) view of ``x``, or None where ``x`` has gaps or overlaps.

    Example:
        A channels_last batch of shape (N, C, H, W) with ``dim=1`` gives (N * H * W, C, 1).
    """
    if channels == 1:
        dense = x.is_contiguous() or _memory_order(x) is not None
        return View(1, 1, x.numel()) if dense else None
    shape = x.shape
    dim %= len(shape)
    if x.is_contiguous():
        return View(math.prod(shape[:dim]), channels, math.prod(shape[dim + 1 :]))
    order = _memory_order(x)
    if order is None:
        return None
    at = order.index(dim)
    return View(
        math.prod(shape[d] for d in order[:at]),
        channels,
        math.prod(shape[d] for d in order[at + 1 :]),
    )


def densify(x: Tensor) -> Tensor:
    """``x`` itself if it is dense, else a dense copy laid out as `torch.empty_like` would."""
    x = x.resolve_neg()  # a view that promises the opposite sign of what memory holds
    return x if x.is_contiguous() or _memory_order(x) is not None else torch.empty_like(x).copy_(x)


def like(source: Tensor, target: Tensor) -> Tensor:
    """``source`` laid out as the dense ``target`` is; copied only where it is not."""
    source = source.resolve_neg()
    axes = zip(target.shape, source.stride(), target.stride(), strict=True)
    if all(size == 1 or ours == theirs for size, ours, theirs in axes):
        return source
    return torch.empty_like(target, dtype=source.dtype).copy_(source)


def _memory_order(x: Tensor) -> list[int] | None:
    """The dims of ``x`` from slowest to fastest, None if they do not tile memory exactly."""
    shape, stride = x.shape, x.stride()
    # Dims of size 1 may carry any stride: behind everything, they disturb nothing.
    order = sorted(range(x.dim()), key=lambda d: (shape[d] == 1, -stride[d]))
    expected = 1
    for d in reversed(order):
        if shape[d] != 1:
            if stride[d] != expected:
                return None
            expected *= shape[d]
    return order
