"""A view of any dense tensor, of any rank and memory format, as (outer, C, inner)."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _torch_compat


class ChannelView(NamedTuple):
    """Sizes of a dense tensor in memory order: element (o, c, i) is at (o * C + c) * inner + i."""

    outer: int
    channels: int
    inner: int


def view(x: Tensor, channels: int, dim: int) -> ChannelView | None:
    """The (outer, C, inner) view of ``x``, or None where ``x`` has gaps or overlaps.

    Example:
        A channels_last batch of shape (N, C, H, W) with ``dim=1`` gives (N * H * W, C, 1).
    """
    return _view(x.shape, x.stride(), channels, dim)


@functools.lru_cache(maxsize=4096)  # a network has few shapes
def _view(
    shape: torch.Size, stride: tuple[int, ...], channels: int, dim: int
) -> ChannelView | None:
    order = _memory_order(shape, stride)
    if order is None:
        return None
    if channels == 1:
        return ChannelView(1, 1, math.prod(shape))
    at = order.index(dim % len(shape))
    return ChannelView(
        math.prod(shape[d] for d in order[:at]),
        channels,
        math.prod(shape[d] for d in order[at + 1 :]),
    )


def densify(x: Tensor) -> Tensor:
    """``x`` itself if it is dense, else a dense copy with the strides of `torch.empty_like`."""
    if _torch_compat.is_zero_tensor(x):  # zeros without memory
        return torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    x = x.resolve_neg()  # a lazily negated view: memory holds the opposite sign
    dense = x.is_contiguous() or _memory_order(x.shape, x.stride()) is not None
    return x if dense else torch.empty_like(x).copy_(x)


def like(source: Tensor, target: Tensor) -> Tensor:
    """``source`` with the strides of the dense ``target``; copied only if it has others."""
    source = source.resolve_neg()
    if source.stride() == target.stride():
        return source
    axes = zip(target.shape, source.stride(), target.stride(), strict=True)
    if all(size == 1 or given == expected for size, given, expected in axes):
        return source
    return torch.empty_like(target, dtype=source.dtype).copy_(source)


def _memory_order(shape: torch.Size, stride: tuple[int, ...]) -> list[int] | None:
    """The dims from slowest to fastest; None if the tensor has gaps or overlaps."""
    if 0 in shape:
        return list(range(len(shape)))
    # Dims of size 1 may have any stride: they come last.
    order = sorted(range(len(shape)), key=lambda d: (shape[d] == 1, -stride[d]))
    expected = 1
    for d in reversed(order):
        if shape[d] != 1:
            if stride[d] != expected:
                return None
            expected *= shape[d]
    return order
