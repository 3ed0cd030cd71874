"""Choosing one of several by chance, from the stream of the run."""

from __future__ import annotations

import torch
from torch import Tensor

from ..seeds import DropoutStream


def pick(weights: Tensor, stream: DropoutStream) -> Tensor:
    """Indices along the last dimension, each with probability proportional to its weight.

    A race: the first to arrive wins, where each arrives after an exponential time with its weight
    as its rate. A weight of 0 never wins against one above it. Where all are 0, any index may come.

    Args:
        weights: (N, ..., K), float32 and not negative; N counts images.
        stream: Where to draw from.

    Shape:
        Output (N, ..., 1), for `torch.gather`.

    Example:
        >>> stream = DropoutStream(0, torch.device("cpu"))
        >>> stream.seek(0)
        >>> pick(torch.tensor([[0.0, 2.0, 0.0]]), stream)
        tensor([[1]])
    """
    times = stream.exponential(weights)
    # A time of 0 would make 0 / 0 of a weight that must not win.
    return (weights / times.clamp_min(torch.finfo(times.dtype).tiny)).argmax(-1, keepdim=True)
