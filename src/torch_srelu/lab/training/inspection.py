"""What is measured in a network after an epoch: weights, activations' inputs and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from torch_srelu.module import NAMES, SReLU

from ..config.run import Run
from ..models.network import Network
from ..records.history import PROBABILITIES
from .step import forward

IMAGES = 64  # how many images the inputs of activations are measured on
_VALUES = 1 << 16  # of each layer's inputs, evenly spaced, for the quantiles


def parameters(net: Network) -> dict[str, Tensor]:
    """Per layer with SReLU, (4, C) on the CPU: t_r, a_r, t_l, a_l."""
    return {
        layer: torch.stack([getattr(act, name).detach() for name in NAMES]).cpu()
        for layer, act in net.activations()
        if isinstance(act, SReLU)
    }


@torch.no_grad()
def weights(net: Network) -> dict[str, Tensor]:
    """Per layer, () on the CPU: the root mean square of its weights."""
    layers = {
        name.removesuffix(".conv").removesuffix(".linear"): module.weight
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }
    sizes = torch.stack([weight.float().square().mean().sqrt() for weight in layers.values()])
    return dict(zip(layers, sizes.cpu(), strict=True))


@torch.no_grad()
def inputs(
    net: Network, images: Tensor, run: Run
) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
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
