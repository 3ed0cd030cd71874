"""Networks that are one layer after the other: plans, and what is built from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..activations import Site, activation
from ..layers import LRN, Layer, Start, convolution, dense, he
from ..network import Chain, Rate
from ..seeds import Dropout, DropoutStream, generator
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
    return nn.MaxPool2d(window, stride, ceil_mode=True)


def average(window: int, stride: int, stream: DropoutStream | None) -> nn.Module:
    """A kind of pooling: the mean of the values that the window covers."""
    return nn.AvgPool2d(window, stride, ceil_mode=True)


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
class Plan:
    """A network before it is built: what goes in, how many classes come out, its layers.

    ``threads`` is how many CPU threads its work is worth; None means all there are.
    """

    channels: int
    size: int
    classes: int
    layers: tuple[Conv | Dense | Pool | Drop | Norm, ...]
    threads: int | None = None


Unit = Callable[[Conv | Dense, Site, DropoutStream | None], nn.Module]


class Stack(Chain):
    """The layers of a plan, the last of which gives the logits.

    Shape:
        Input (N, C, H, W) as the plan says; output (N, classes): logits.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flatten(1)

    def layers(self) -> Iterator[tuple[str, Layer]]:
        """The convolutions and dense layers by name."""
        for name, module in self.named_children():
            if isinstance(module, Layer):
                yield name, module

    def sites(self) -> Iterator[tuple[str, nn.Module]]:
        for name, layer in self.layers():
            if not isinstance(layer.act, nn.Identity):
                yield name, layer.act

    def rates(self, weight_decay: float) -> Iterator[Rate]:
        for _, layer in self.layers():
            yield from layer.rates(weight_decay)

    def constrain(self) -> None:
        for _, layer in self.layers():
            if layer.max_norm is not None:
                limit_norm(layer.linear.weight, layer.max_norm)


def by_name(act: str, options: Mapping[str, Any] | None = None) -> Unit:
    """Makes the registered activation ``act`` for every layer."""
    registered = activation(act)
    return lambda layer, site, stream: registered.build(site, **(options or {}))


def build(plan: Plan, unit: Unit, *, seed: int = 0, dropout: DropoutStream | None = None) -> Stack:
    """Builds a plan.

    Equal seeds give equal weights for every activation.

    Args:
        plan: The layers.
        unit: Makes the activation of a layer.
        seed: Feeds the streams for weights and for activation parameters.
        dropout: Where training draws from; needed for training only.

    Example:
        >>> import torch
        >>> layers = (Conv("conv", 4, 3), Pool(maximum, 2, 2), Dense("y", 10, acts=False))
        >>> plan = Plan(channels=1, size=8, classes=10, layers=layers)
        >>> build(plan, by_name("relu"))(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    weights, draws = generator(seed, "weights"), generator(seed, "activation")
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    channels, size, before = plan.channels, plan.size, "input"
    for layer in plan.layers:
        if isinstance(layer, Conv | Dense):
            outputs = layer.channels * layer.pieces
            if isinstance(layer, Conv):
                linear = convolution(
                    channels, outputs, layer.kernel, layer.start, weights, padding=layer.padding
                )
                size += 2 * layer.padding - layer.kernel + 1
            else:
                linear = dense(channels * size**2, outputs, layer.start, weights)
                size = 1
            channels, before = layer.channels, layer.name
            site = Site(channels, size, size, draws)
            act = unit(layer, site, dropout) if layer.acts else nn.Identity()
            modules[layer.name] = Layer(linear, act, layer.weight_lr, layer.bias_lr, layer.max_norm)
        elif isinstance(layer, Pool):
            modules[f"{before}_pool"] = layer.kind(layer.window, layer.stride, dropout)
            size = -(-(size - layer.window) // layer.stride) + 1
        elif isinstance(layer, Drop):
            modules[f"{before}_dropout"] = Dropout(layer.share, dropout)
        else:
            modules[f"{before}_norm"] = LRN(layer.size, layer.alpha, layer.beta)
    return Stack(modules)
