"""Deeply supervised nets (Lee et al., 2014): NIN with companion losses on inner layers.

For the first part of the training, a dense head on the inputs of some activations adds its loss;
then the heads rest. At test there is nothing but NIN, with max pooling and without its last
activation. Ours are: no falling rate of the heads' own, and everything on MNIST.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...runtime.seeds import generator
from ...util.patience import PATIENCE
from .. import nin_networks
from ..layers import convolve, dense
from ..network import Making, Network, Rate

SUPERVISED = ("conv1", "conv2", "conv3")
COMPANIONS_UNTIL = 50 / 200  # thousand iterations of the whole training


def squared_hinge(logits: Tensor, labels: Tensor) -> Tensor:
    """sum_c max(0, 1 - t_c f_c)^2 with t = 1 for the class and -1 for others; mean over images.

    Example:
        >>> squared_hinge(torch.tensor([[2.0, 0.5]]), torch.tensor([0]))  # (1 + 0.5)^2
        tensor(2.2500)
    """
    own = labels[:, None] == torch.arange(logits.shape[1], device=labels.device)
    margin = torch.where(own, logits, -logits)
    return (1 - margin).clamp_min(0).square().sum(1).mean()


LOSSES = {"hinge": squared_hinge, "softmax": F.cross_entropy}


def _start(weight: Tensor, draws: torch.Generator) -> None:
    """Uniform with variance 1 / number of all weights: what Caffe did for dense layers then."""
    bound = math.sqrt(3 / weight.numel())
    weight.uniform_(-bound, bound, generator=draws)


class DSN(Network):
    """A network in network with companion heads.

    Args:
        trunk: The network that is tested.
        size: Side of its images.
        classes: The number of classes.
        loss: One of `LOSSES`, for the output and the heads alike.
        draws: Starts the weights of the heads.
    """

    def __init__(
        self, trunk: nin_networks.NIN, size: int, classes: int, loss: str, draws: torch.Generator
    ) -> None:
        super().__init__()
        self.trunk, self.criterion, self.supervising = trunk, LOSSES[loss], True
        self.heads = nn.ModuleDict()
        for name, block in trunk.blocks():
            if name in SUPERVISED:
                self.heads[name] = dense(block.layer.channels * size**2, classes, _start, draws)
                size = (size - 2) // 2 + 1

    def forward(self, x: Tensor) -> Tensor:
        return self.trunk(x)

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        if not self.supervising:
            return (self(x),)
        companions = []
        for name, module in self.trunk.named_children():
            if name in self.heads:
                assert isinstance(module, nin_networks.Block)
                z = convolve(module.conv, x)
                companions.append(self.heads[name](z.flatten(1)))
                x = module.act(z)
            else:
                x = module(x)
        return self.trunk.logits(x), *companions

    def losses(self, outputs: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
        loss = torch.stack([self.criterion(logits, labels) for logits in outputs]).sum()
        return loss, F.cross_entropy(outputs[0].detach(), labels)

    def begin(self, done: float) -> bool:
        before, self.supervising = self.supervising, done < COMPANIONS_UNTIL
        return self.supervising != before

    def sites(self) -> Iterator[tuple[str, nn.Module]]:
        return self.trunk.sites()

    def rates(self, weight_decay: float) -> Iterator[Rate]:
        yield from self.trunk.rates(weight_decay)
        for head in self.heads.values():
            assert isinstance(head, nn.Linear)
            yield Rate(head.weight, 0.001, weight_decay)
            yield Rate(head.bias, 0.002, 0.0)


@dataclass(frozen=True)
class DSNPlan(nin_networks.Plan):
    """A deeply supervised network in network.

    Attributes:
        loss: One of `LOSSES`.

    Example:
        >>> net = PLANS["dsn-cifar10"].build("relu")
        >>> sum(p.numel() for p in net.trunk.parameters())
        966986
    """

    loss: str

    def made(self, making: Making) -> DSN:
        # Another position of the stream: the trunk's weights are those of NIN.
        draws = generator(making.seed, "weights", position=1)
        return DSN(nin_networks.nin(self, making), self.size, self.classes, self.loss, draws)


def _plan(data: str, loss: str) -> DSNPlan:
    """NIN with max pooling everywhere and no activation at its end."""
    nin = nin_networks.plan(f"nin-{data}")
    *layers, last = nin.layers
    assert isinstance(last, nin_networks.Conv)
    layers = [replace(la, kind="max") if isinstance(la, nin_networks.Pool) else la for la in layers]
    last = replace(last, acts=False, weight_lr=0.1, bias_lr=0.2)
    layers = (*layers, last)
    shape = (nin.channels, nin.size, nin.classes)
    return DSNPlan(*shape, layers, loss, threads=nin.threads, dead_after=PATIENCE)


PLANS = {
    "dsn-cifar10": _plan("cifar10", "hinge"),
    "dsn-cifar100": _plan("cifar100", "softmax"),
    "dsn-mnist": _plan("mnist", "hinge"),
}
