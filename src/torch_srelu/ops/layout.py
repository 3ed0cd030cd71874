"""Any dense tensor, of any rank and memory format, seen as (outer, C, inner)."""

from __future__ import annotations

import functools
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
    return _view(x.shape, x.stride(), channels, dim)


@functools.lru_cache(maxsize=4096)  # a network asks for the same few, over and over
def _view(shape: torch.Size, stride: tuple[int, ...], channels: int, dim: int) -> View | None:
    order = _memory_order(shape, stride)
    if order is None:
        return None
    if channels == 1:
        return View(1, 1, math.prod(shape))
    at = order.index(dim % len(shape))
    return View(
        math.prod(shape[d] for d in order[:at]),
        channels,
        math.prod(shape[d] for d in order[at + 1 :]),
    )


def densify(x: Tensor) -> Tensor:
    """``x`` itself if it is dense, else a dense copy laid out as `torch.empty_like` would."""
    if x._is_zerotensor():  # zeros that have no memory
        return torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    x = x.resolve_neg()  # a view that promises the opposite sign of what memory holds
    dense = x.is_contiguous() or _memory_order(x.shape, x.stride()) is not None
    return x if dense else torch.empty_like(x).copy_(x)


def like(source: Tensor, target: Tensor) -> Tensor:
    """``source`` laid out as the dense ``target`` is; copied only where it is not."""
    source = source.resolve_neg()
    if source.stride() == target.stride():
        return source
    axes = zip(target.shape, source.stride(), target.stride(), strict=True)
    if all(size == 1 or ours == theirs for size, ours, theirs in axes):
        return source
    return torch.empty_like(target, dtype=source.dtype).copy_(source)


def _memory_order(shape: torch.Size, stride: tuple[int, ...]) -> list[int] | None:
    """The dims from slowest to fastest, None if they do not tile memory exactly."""
    if 0 in shape:  # nothing to tile
        return list(range(len(shape)))
    # Dims of size 1 may carry any stride: behind everything, they disturb nothing.
    order = sorted(range(len(shape)), key=lambda d: (shape[d] == 1, -stride[d]))
    expected = 1
    for d in reversed(order):
        if shape[d] != 1:
            if stride[d] != expected:
                return None
            expected *= shape[d]
    return order
