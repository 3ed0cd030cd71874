"""What is measured of a network: errors and losses, and its weights, inputs and parameters."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_srelu.module import NAMES, SReLU

from ..config.run import Run
from ..models.network import Network
from ..records.history import PROBABILITIES
from .step import forward

IMAGES = 64  # how many images the inputs of activations are measured on
_VALUES = 1 << 16  # of each layer's inputs, evenly spaced, for the quantiles


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


def layer_parameters(net: Network) -> dict[str, Tensor]:
    """Per layer with SReLU, (4, C) on the CPU: t_r, a_r, t_l, a_l."""
    return {
        layer: torch.stack([getattr(act, name).detach() for name in NAMES]).cpu()
        for layer, act in net.activations()
        if isinstance(act, SReLU)
    }


@torch.no_grad()
def layer_weights(net: Network) -> dict[str, Tensor]:
    """Per layer, () on the CPU: the root mean square of its weights."""
    layers = {
        name.removesuffix(".conv").removesuffix(".linear"): module.weight
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }
    sizes = torch.stack([weight.float().square().mean().sqrt() for weight in layers.values()])
    return dict(zip(layers, sizes.cpu(), strict=True))


@torch.no_grad()
def layer_inputs(
    net: Network, images: Tensor, run: Run
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Per layer the quantiles (Q,) and the mean magnitude () of the activation's inputs.

    Args:
        net: The network; it is run in eval mode and left in training mode.
        images: Prepared images, of which the first `IMAGES` are used.
        run: For its precision.
    """
    quantiles: dict[str, Tensor] = {}
    magnitude: dict[str, Tensor] = {}

    def observe(layer: str, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        values = args[0].detach().float().flatten()
        magnitude[layer] = values.abs().mean().cpu()
        some = values[:: max(1, len(values) // _VALUES)].sort().values
        ranks = [round(p * (len(some) - 1)) for p in PROBABILITIES]
        quantiles[layer] = some[ranks].cpu()

    hooks = [
        act.register_forward_pre_hook(partial(observe, name)) for name, act in net.activations()
    ]
    net.eval()
    forward(net, images[:IMAGES], run)
    net.train()
    for hook in hooks:
        hook.remove()
    return quantiles, magnitude
