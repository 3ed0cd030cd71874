"""Draws one of several values from the random stream of the run."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.seeds import DropoutStream


def draw(values: Tensor, weights: Tensor, stream: DropoutStream) -> Tensor:
    """One of the values along the last dimension, with probability proportional to its weight.

    The smallest of exponential variables whose rates are the weights. A weight of 0 is never drawn
    if there is one above it; where all are 0, any value may be. The gradient goes to the value that
    was drawn.

    Args:
        values: (N, ..., K); N counts images.
        weights: Likewise, float32 or better and not negative; they get no gradient.
        stream: Where to draw from.

    Shape:
        Output (N, ...).

    Example:
        >>> stream = DropoutStream(0, torch.device("cpu"))
        >>> stream.seek(0)
        >>> draw(torch.tensor([[5.0, 6.0, 7.0]]), torch.tensor([[0.0, 2.0, 0.0]]), stream)
        tensor([6.])
    """
    times = stream.exponential(weights)
    # A time of 0 would make 0 / 0 of a weight that must not be drawn.
    speeds = weights.detach() / times.clamp_min(torch.finfo(times.dtype).tiny)
    drawn = speeds.argmax(-1, keepdim=True) == torch.arange(weights.shape[-1], device=times.device)
    # No gather: its gradient would be added up with atomics, or sorted to be deterministic.
    return torch.where(drawn, values, 0).sum(-1)
