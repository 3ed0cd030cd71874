"""Logits, errors and losses of a network on images with known classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config.run import Run
from ..models.network import Network
from .step import forward


class Evaluation(NamedTuple):
    """The logits (N, classes) of a network, and the true classes (N,)."""

    logits: Tensor
    labels: Tensor

    @property
    def predictions(self) -> Tensor:
        """The most likely classes (N,)."""
        return self.logits.argmax(1)

    @property
    def error(self) -> float:
        """The share of wrong predictions."""
        return (self.predictions != self.labels).sum().item() / len(self.labels)

    @property
    def loss(self) -> float:
        """The mean cross-entropy."""
        return F.cross_entropy(self.logits.double(), self.labels).item()


@torch.no_grad()
def evaluate(net: Network, data: Iterable[tuple[Tensor, Tensor]], run: Run) -> Evaluation:
    """Evaluates ``net`` in eval mode and in the run's precision; leaves it in training mode.

    Args:
        net: The network.
        data: Batches of images and their classes.
        run: For its precision.
    """
    net.eval()
    results = [(forward(net, images, run)[0], classes) for images, classes in data]
    net.train()
    logits, labels = zip(*results, strict=True)
    return Evaluation(torch.cat(logits), torch.cat(labels))


def top_errors(logits: Tensor, labels: Tensor, ks: tuple[int, ...] = (1, 5)) -> dict[int, float]:
    """The share of images whose class is not among the k largest logits, for each k.

    A class counts as found only if fewer than k others are as large, so that equal logits count as
    errors. With k classes or less, everything is found.

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
