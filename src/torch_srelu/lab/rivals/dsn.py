"""Deeply supervised nets (Lee et al., 2014): NIN with companion losses on inner layers.

For the first part of the training, a dense head on the inputs of some activations adds its loss;
then the heads rest. At test there is nothing but NIN, with max pooling and without its last
activation. Ours are: no falling rate of the heads' own, and MNIST as CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import nets
from ..choices import check_choice
from ..layers import dense, xavier
from ..network import Network, Rate
from ..seeds import DropoutStream, generator

SUPERVISED = ("conv1", "conv2", "conv3")
COMPANIONS_UNTIL = 50 / 200  # thousand iterations of the whole training


def squared_hinge(logits: Tensor, labels: Tensor) -> Tensor:
    """sum_c max(0, 1 - t_c f_c)^2 with t = 1 for the class and -1 for others; mean over images.

    Example:
        >>> squared_hinge(torch.tensor([[2.0, 0.5]]), torch.tensor([0]))  # (1 + 0.5)^2
        tensor(2.2500)
    """
    sign = 2 * F.one_hot(labels, logits.shape[1]).to(logits.dtype) - 1
    return (1 - sign * logits).clamp_min(0).square().sum(1).mean()


LOSSES = {"hinge": squared_hinge, "softmax": F.cross_entropy}


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
        self, trunk: nets.NIN, size: int, classes: int, loss: str, draws: torch.Generator
    ) -> None:
        super().__init__()
        self.trunk, self.criterion, self.supervising = trunk, LOSSES[loss], True
        self.heads = nn.ModuleDict()
        self._inner: list[Tensor] | None = None  # where inputs of activations are kept, if at all
        for name, block in trunk.blocks():
            if name in SUPERVISED:
                self.heads[name] = dense(block.layer.channels * size**2, classes, xavier, draws)
                size = (size - 2) // 2 + 1
                block.act.register_forward_pre_hook(self._keep)

    def _keep(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self._inner is not None:
            self._inner.append(inputs[0])

    def forward(self, x: Tensor) -> Tensor:
        return self.trunk(x)

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        if not self.supervising:
            return (self(x),)
        self._inner = inner = []
        try:
            logits = self(x)
        finally:
            self._inner = None
        heads = zip(self.heads.values(), inner, strict=True)
        return logits, *(head(z.flatten(1)) for head, z in heads)

    def loss(self, outputs: tuple[Tensor, ...], labels: Tensor) -> Tensor:
        return torch.stack([self.criterion(logits, labels) for logits in outputs]).sum()

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


def _plan(name: str) -> nets.Plan:
    """NIN with max pooling everywhere and no activation at its end."""
    plan = nets.plan(name)
    *layers, last = plan.layers
    assert isinstance(last, nets.Conv)
    layers = [replace(la, kind="max") if isinstance(la, nets.Pool) else la for la in layers]
    last = replace(last, acts=False, weight_lr=0.1, bias_lr=0.2)
    return replace(plan, layers=(*layers, last))


PLANS = {f"dsn-{data}": _plan(f"nin-{data}") for data in ("cifar10", "cifar100", "mnist")}
SOFTMAX = ("dsn-cifar100",)  # the others have squared hinge losses


def build(
    name: str,
    act: str = "relu",
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    dropout: DropoutStream | None = None,
) -> DSN:
    """Builds a deeply supervised net.

    Args:
        name: One of `PLANS`.
        act: A registered activation.
        options: Options of the activation.
        seed: Feeds the streams for weights and for activation parameters.
        dropout: Where dropout draws from; needed for training only.

    Example:
        >>> net = build("dsn-cifar10")
        >>> sum(p.numel() for p in net.trunk.parameters())
        966986
    """
    check_choice("deeply supervised net", name, PLANS)
    plan = PLANS[name]
    trunk = nets.build(plan, act, options, seed=seed, dropout=dropout)
    loss = "softmax" if name in SOFTMAX else "hinge"
    # Heads draw after the trunk's weights, which are those of NIN: another position of the stream.
    return DSN(trunk, plan.size, plan.classes, loss, generator(seed, "weights", position=1))
