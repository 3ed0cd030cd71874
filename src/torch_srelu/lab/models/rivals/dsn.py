"""Deeply supervised nets (Lee et al., 2014): NIN with companion losses on inner layers.

For the first part of the training, a dense head on the inputs of some activations adds its loss;
then the heads are no longer used. In evaluation there is nothing but NIN, with max pooling and
without its last activation. Ours are: no falling rate of the heads' own, and everything on MNIST.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...runtime.seeds import generator
from ..convolutions import convolve
from ..layers import ActivatedLayer, ConvSpec, DenseSpec, LayerBuilder, ParameterRate
from ..network import Network
from ..sequential import PoolSpec, SequentialNetwork, SequentialSpec, max_pool
from ..sequential_networks import NETWORKS as NIN

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


def _initializer(weight: Tensor, draws: torch.Generator) -> None:
    """Uniform with variance 1 / number of all weights: what Caffe did for dense layers then."""
    bound = math.sqrt(3 / weight.numel())
    weight.uniform_(-bound, bound, generator=draws)


class DSN(Network):
    """A network in network with companion heads.

    Args:
        trunk: The network that is evaluated.
        size: Side of its images.
        classes: The number of classes.
        loss: One of `LOSSES`, for the output and the heads alike.
        draws: Initializes the weights of the heads.
    """

    def __init__(
        self, trunk: SequentialNetwork, size: int, classes: int, loss: str, draws: torch.Generator
    ) -> None:
        super().__init__()
        self.trunk, self.criterion, self.supervising = trunk, LOSSES[loss], True
        self.heads = nn.ModuleDict()
        for name, layer in trunk.layers():
            if name in SUPERVISED:
                spec = DenseSpec(name, classes, initializer=_initializer)
                self.heads[name] = spec.build(layer.spec.channels, size, draws)
                size = (size - 2) // 2 + 1  # after pooling

    def forward(self, x: Tensor) -> Tensor:
        return self.trunk(x)

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        if not self.supervising:
            return (self(x),)
        companions = []
        for name, module in self.trunk.named_children():
            if name in self.heads:
                assert isinstance(module, ActivatedLayer)
                assert isinstance(module.weights, nn.Conv2d)
                z = convolve(module.weights, x)
                companions.append(self.heads[name](z.flatten(1)))
                x = module.act(z)
            else:
                x = module(x)
        return x.flatten(1), *companions

    def losses(self, outputs: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
        loss = torch.stack([self.criterion(logits, labels) for logits in outputs]).sum()
        return loss, F.cross_entropy(outputs[0].detach(), labels)

    def begin(self, done: float) -> bool:
        before, self.supervising = self.supervising, done < COMPANIONS_UNTIL
        return self.supervising != before

    def activations(self) -> Iterator[tuple[str, nn.Module]]:
        return self.trunk.activations()

    def rates(self, weight_decay: float) -> Iterator[ParameterRate]:
        yield from self.trunk.rates(weight_decay)
        for head in self.heads.values():
            assert isinstance(head, nn.Linear)
            yield ParameterRate(head.weight, 0.001, weight_decay)
            yield ParameterRate(head.bias, 0.002, 0.0)


@dataclass(frozen=True)
class DSNSpec(SequentialSpec):
    """A deeply supervised network in network.

    Attributes:
        loss: One of `LOSSES`.

    Example:
        >>> net = NETWORKS["dsn-cifar10"].build("relu")
        >>> sum(p.numel() for p in net.trunk.parameters())
        966986
    """

    loss: str

    def build_network(self, builder: LayerBuilder) -> DSN:
        # Another position of the stream: the trunk's weights are those of NIN.
        draws = generator(builder.seed, "weights", position=1)
        return DSN(self.build_layers(builder), self.size, self.classes, self.loss, draws)


def supervised_nin(data: str, loss: str) -> DSNSpec:
    """NIN with max pooling everywhere and no activation at its end, with companion losses."""
    nin = NIN[f"nin-{data}"]
    *layers, last, mean = nin.layers
    assert isinstance(last, ConvSpec)
    layers = [replace(s, pooling=max_pool) if isinstance(s, PoolSpec) else s for s in layers]
    layers = (*layers, replace(last, acts=False, weight_lr=0.1, bias_lr=0.2), mean)
    return DSNSpec(nin.channels, nin.size, nin.classes, layers, loss, threads=nin.threads)


NETWORKS = {
    "dsn-cifar10": supervised_nin("cifar10", "hinge"),
    "dsn-cifar100": supervised_nin("cifar100", "softmax"),
    "dsn-mnist": supervised_nin("mnist", "hinge"),
}
