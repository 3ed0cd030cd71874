"""Networks that are one layer after the other: plans, and what is built from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor, nn

from ...runtime.seeds import Dropout, DropoutStream
from ...util.patience import PATIENCE
from .. import network, nin_networks
from ..activation_registry import Site
from ..layers import LRN, Layer, Layered, Start, convolution, dense, he
from ..network import Chain, Making
from .max_norm import limit_norm


@dataclass(frozen=True, kw_only=True)
class _Map:
    """What convolutions and dense layers have in common.

    Attributes:
        start: How the weights start; biases start at 0.
        pieces: Channels that the activation joins into one (maxout).
        acts: Whether an activation follows.
        weight_lr: Factor on the learning rate of the weights, which are decayed.
        bias_lr: Likewise for the biases, which are not.
        max_norm: Largest L2 norm of the weights into one output; None for no limit.
    """

    start: Start = he
    pieces: int = 1
    acts: bool = True
    weight_lr: float = 1.0
    bias_lr: float = 2.0
    max_norm: float | None = None


@dataclass(frozen=True)
class Conv(_Map):
    """A convolution with an activation that leaves ``channels``."""

    name: str
    channels: int
    kernel: int
    padding: int = 0


@dataclass(frozen=True)
class Dense(_Map):
    """A fully connected layer with an activation that leaves ``channels``."""

    name: str
    channels: int


PoolKind = Callable[[int, int, DropoutStream | None], nn.Module]


@dataclass(frozen=True)
class Pool:
    """Pooling; the kind makes the module. Windows that reach over the border are cut there."""

    kind: PoolKind
    window: int
    stride: int


def maximum(window: int, stride: int, stream: DropoutStream | None) -> nn.Module:
    """A kind of pooling: the largest value."""
    return nin_networks.POOLS["max"](window, stride, ceil_mode=True)


def average(window: int, stride: int, stream: DropoutStream | None) -> nn.Module:
    """A kind of pooling: the mean of the values that the window covers."""
    return nin_networks.POOLS["average"](window, stride, ceil_mode=True)


@dataclass(frozen=True)
class Drop:
    """Dropout with probability ``share`` of a zero."""

    share: float


@dataclass(frozen=True)
class Norm:
    """Local response normalisation over ``size`` channels."""

    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75


@dataclass(frozen=True)
class Plan(network.Plan):
    """A network of one layer after the other.

    Example:
        >>> import torch
        >>> layers = (Conv("conv", 4, 3), Pool(maximum, 2, 2), Dense("y", 10, acts=False))
        >>> plan = Plan(channels=1, size=8, classes=10, layers=layers)
        >>> plan.build("relu")(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    layers: tuple[Conv | Dense | Pool | Drop | Norm, ...]
    dead_after: int = field(default=PATIENCE, kw_only=True)

    def made(self, making: Making) -> network.Network:
        maker = _Maker(self, making)
        modules: dict[str, nn.Module] = {}
        before = "input"
        for layer in self.layers:
            if isinstance(layer, Conv | Dense):
                before = layer.name
                modules[before] = maker.layer(layer)
            elif isinstance(layer, Pool):
                modules[f"{before}_pool"] = maker.pool(layer)
            elif isinstance(layer, Drop):
                modules[f"{before}_dropout"] = Dropout(layer.share, making.dropout)
            else:
                modules[f"{before}_norm"] = LRN(layer.size, layer.alpha, layer.beta)
        return Stack(modules)


class _Maker:
    """Makes the layers of a plan, knowing what comes out of the one before."""

    def __init__(self, plan: Plan, making: Making) -> None:
        self.making = making
        self.channels, self.size, self.depth = plan.channels, plan.size, 0
        self.weights, self.draws = making.streams()

    def layer(self, layer: Conv | Dense) -> Layer:
        linear = self._linear(layer)
        self.channels = layer.channels
        act = self._act(layer) if layer.acts else nn.Identity()
        return Layer(linear, act, layer.weight_lr, layer.bias_lr, layer.max_norm)

    def _linear(self, layer: Conv | Dense) -> nn.Conv2d | nn.Linear:
        outputs = layer.channels * layer.pieces
        if isinstance(layer, Dense):
            inputs, self.size = self.channels * self.size**2, 1
            return dense(inputs, outputs, layer.start, self.weights)
        self.size += 2 * layer.padding - layer.kernel + 1
        return convolution(
            self.channels, outputs, layer.kernel, layer.start, self.weights, padding=layer.padding
        )

    def _act(self, layer: Conv | Dense) -> nn.Module:
        size, depth, stream = self.size, self.depth, self.making.dropout
        self.depth += 1
        site = Site(layer.channels, size, size, self.draws, layer.pieces, depth, stream)
        return self.making.act(site)

    def pool(self, pool: Pool) -> nn.Module:
        self.size = -(-(self.size - pool.window) // pool.stride) + 1
        return pool.kind(pool.window, pool.stride, self.making.dropout)


class Stack(Layered, Chain):
    """The layers of a plan, the last of which gives the logits.

    Shape:
        Input (N, C, H, W) as the plan says; output (N, classes): logits.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flatten(1)

    def constrain(self) -> None:
        for _, layer in self.layers():
            if layer.max_norm is not None:
                limit_norm(layer.linear.weight, layer.max_norm)
