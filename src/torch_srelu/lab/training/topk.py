"""How often the true class is not among the k likeliest."""

from __future__ import annotations

from torch import Tensor


def top_errors(logits: Tensor, labels: Tensor, ks: tuple[int, ...] = (1, 5)) -> dict[int, float]:
    """The share of images whose class is not among the k largest logits, for each k.

    A class counts as found only if fewer than k others are as large: among equal logits nobody
    is lucky. With k classes or less, everything is found.

    Args:
        logits: (N, classes).
        labels: (N,).
        ks: How many guesses are allowed.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.1, 0.9, 0.5], [0.8, 0.3, 0.1]])
        >>> top_errors(logits, torch.tensor([2, 2]), ks=(1, 2))
        {1: 1.0, 2: 0.5}
    """
    own = logits.gather(1, labels[:, None])
    rank = (~(logits < own)).sum(1) - 1  # others as large; a NaN is larger than everything
    return {k: (rank >= k).sum().item() / len(rank) for k in ks}
