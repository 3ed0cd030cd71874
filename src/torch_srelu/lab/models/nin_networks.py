"""Network in Network (Lin et al., 2013), as published for each data set, with any activation."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..runtime.seeds import Dropout, DropoutStream
from ..util.choices import check_choice
from . import network
from .activation_registry import Site
from .layers import activated
from .network import Chain, Making, Rate, activation_rates


@dataclass(frozen=True)
class Conv:
    """A convolution and, if it ``acts``, its activation; padding keeps the size.

    Weights start normal with deviation ``std``, or sqrt(2 / inputs of a sum) if it is None; biases
    start at ``bias``. The factors multiply the run's learning rate, for the weight and the bias.
    Biases are not decayed, weights are.
    """

    name: str
    channels: int
    kernel: int = 1
    std: float | None = 0.05
    bias: float = 0.0
    weight_lr: float = 1.0
    bias_lr: float = 2.0
    acts: bool = True


@dataclass(frozen=True)
class Pool:
    """Pooling over 3 x 3 with stride 2, the last window cut at the border; then dropout."""

    name: str
    kind: str  # "max" or "average"
    dropout: float = 0.5


@dataclass(frozen=True)
class Plan(network.Plan):
    """A network in network before it is built: its layers in order."""

    layers: tuple[Conv | Pool, ...]

    def made(self, making: Making) -> network.Network:
        return nin(self, making)


def _cifar(
    classes: int,
    first_std: float,
    cccp_std: float,
    last_lr: tuple[float, float],
    pool2: str = "average",
) -> Plan:
    layers = (
        Conv("conv1", 192, 5, first_std),
        Conv("cccp1", 160, std=cccp_std),
        Conv("cccp2", 96, std=cccp_std),
        Pool("pool1", "max"),
        Conv("conv2", 192, 5),
        Conv("cccp3", 192),
        Conv("cccp4", 192),
        Pool("pool2", pool2),
        Conv("conv3", 192, 3),
        Conv("cccp5", 192),
        Conv("cccp6", classes, weight_lr=last_lr[0], bias_lr=last_lr[1]),
    )
    return Plan(3, 32, classes, layers)


def _mnist(last_std: float | None, last_bias: float) -> Plan:
    """NIN for MNIST: the layers as published.

    The rest is not, and ours: factors like CIFAR-10's; weights scaled by their number, since with
    0.05 in layers this narrow the signal fades and ReLU dies.
    """
    layers = (
        Conv("conv1", 96, 5, std=None),
        Conv("cccp1", 64, std=None),
        Conv("cccp2", 48, std=None),
        Pool("pool1", "max"),
        Conv("conv2", 128, 5, std=None),
        Conv("cccp3", 96, std=None),
        Conv("cccp4", 48, std=None),
        Pool("pool2", "max"),
        Conv("conv3", 128, 5, std=None),
        Conv("cccp5", 96, std=None),
        Conv("cccp6", 10, std=last_std, bias=last_bias, weight_lr=0.1, bias_lr=0.1),
    )
    return Plan(1, 28, 10, layers)


# Caffe's model zoo.
_CIFAR10: dict[str, Any] = {"first_std": 0.05, "cccp_std": 0.05, "last_lr": (0.1, 0.1)}
# The authors' cuda-convnet files: one learning rate for all layers, and smaller first weights. With
# ReLU their start is dead: the image is lost in the last biases' first steps, and a class that they
# push below zero never comes back. So the weights start as on CIFAR-10, with which ReLU learns.
_CIFAR100: dict[str, Any] = {"first_std": 0.05, "cccp_std": 0.05, "last_lr": (1.0, 2.0)}
_CIFAR100_PUBLISHED: dict[str, Any] = _CIFAR100 | {"first_std": 0.001, "cccp_std": 0.01}

PLANS: dict[str, Plan] = {
    "nin-cifar10": _cifar(10, **_CIFAR10),
    "nin-cifar100": _cifar(100, **_CIFAR100),
    "nin-published-start-cifar100": _cifar(100, **_CIFAR100_PUBLISHED),
    # As NIN's authors had it, before Caffe: the maximum in the second pool too.
    "nin-max-cifar10": _cifar(10, **_CIFAR10, pool2="max"),
    "nin-max-cifar100": _cifar(100, **_CIFAR100, pool2="max"),
    # A class whose map falls below zero for every image gets no gradient, and rarely comes back:
    # with a last layer that starts like the others, ReLU ended without two and three of ten at two
    # of three seeds (block `start`). So all maps start alike, and above zero.
    "nin-mnist": _mnist(last_std=None, last_bias=0.0),
    "nin-lifted-mnist": _mnist(last_std=0.05, last_bias=1.0),
    # Ours, for the embedded digits: seconds on one core; more threads would wait for each other.
    # Its last biases are lifted too.
    "nin-digits": Plan(
        1,
        8,
        10,
        (
            Conv("conv1", 32, 3, std=None),
            Conv("cccp1", 24, std=None),
            Pool("pool1", "max", dropout=0.2),
            Conv("conv2", 48, 3, std=None),
            Conv("cccp2", 32, std=None),
            Pool("pool2", "average", dropout=0.2),
            Conv("conv3", 48, 3, std=None),
            Conv("cccp3", 10, std=None, bias=1.0, weight_lr=0.1, bias_lr=0.1),
        ),
        threads=1,
    ),
}


class Block(nn.Module):
    """A convolution and the activation on its outputs."""

    def __init__(self, layer: Conv, inputs: int, act: nn.Module, weights: torch.Generator) -> None:
        super().__init__()
        self.layer = layer
        shape = (inputs, layer.channels, layer.kernel)
        # Without the default initialisation, which would draw from torch's own random stream.
        conv = nn.utils.skip_init(nn.Conv2d, *shape, padding=layer.kernel // 2)
        assert isinstance(conv, nn.Conv2d)
        self.conv = conv
        self.act = act
        std = layer.std or math.sqrt(2 / conv.weight[0].numel())
        with torch.no_grad():
            self.conv.weight.normal_(0, std, generator=weights)
            assert self.conv.bias is not None
            self.conv.bias.fill_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return activated(self.conv, self.act, x)


# Caffe pools like this: windows that reach over the border are cut there. Without padding, what is
# "included" changes nothing, but compiled code divides the gradients of cut windows by the size of
# whole ones unless nothing is (pytorch/pytorch#198119).
POOLS = {"max": nn.MaxPool2d, "average": partial(nn.AvgPool2d, count_include_pad=False)}


class NIN(Chain):
    """Blocks and pools in the order of a plan, then the mean over all positions.

    Shape:
        Input (N, C, H, W) as the plan says; output (N, classes): logits.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(super().forward(x))

    def logits(self, features: Tensor) -> Tensor:
        """The mean of the last layer's outputs (N, classes, H, W) over all positions."""
        # They keep float32 where the layers before are of lower precision.
        return features.mean((2, 3), dtype=torch.promote_types(features.dtype, torch.float32))

    def blocks(self) -> Iterator[tuple[str, Block]]:
        """The convolutions with their activations, by the paper's layer names."""
        for name, module in self.named_children():
            if isinstance(module, Block):
                yield name, module

    def sites(self) -> Iterator[tuple[str, nn.Module]]:
        for name, block in self.blocks():
            if block.layer.acts:
                yield name, block.act

    def rates(self, weight_decay: float) -> Iterator[Rate]:
        for _, block in self.blocks():
            yield Rate(block.conv.weight, block.layer.weight_lr, weight_decay)
            assert block.conv.bias is not None
            yield Rate(block.conv.bias, block.layer.bias_lr, 0.0)
            yield from activation_rates(block.act)


def plan(name: str) -> Plan:
    """The plan of a network by name."""
    check_choice("net", name, PLANS)
    return PLANS[name]


def build(
    net: str | Plan,
    act: str,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    dropout: DropoutStream | None = None,
) -> NIN:
    """Builds a network by the names of its plan and its activation.

    Equal seeds give equal weights for every activation.

    Args:
        net: One of `PLANS`, by name, or another plan.
        act: A registered activation.
        options: Options of the activation.
        seed: Feeds the streams for weights and for activation parameters.
        dropout: Where dropout draws from; needed for training only.

    Example:
        >>> net = build("nin-cifar10", "relu")
        >>> sum(p.numel() for p in net.parameters())
        966986
        >>> sum(p.numel() for p in build("nin-cifar10", "srelu").parameters()) - 966986
        5672
    """
    spec = plan(net) if isinstance(net, str) else net
    return nin(spec, Making(spec.unit(act), options or {}, seed, dropout))


def nin(spec: Plan, making: Making) -> NIN:
    """The network of a plan's layers alone: what `build` makes, and the trunk of others."""
    weights, draws = making.streams()
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    channels, size = spec.channels, spec.size
    for layer in spec.layers:
        if isinstance(layer, Pool):
            modules[layer.name] = POOLS[layer.kind](3, stride=2, ceil_mode=True)
            modules[layer.name + "_dropout"] = Dropout(layer.dropout, making.dropout)
            size = (size - 2) // 2 + 1
        else:
            site = Site(layer.channels, size, size, draws)
            built = making.act(site) if layer.acts else nn.Identity()
            modules[layer.name] = Block(layer, channels, built, weights)
            channels = layer.channels
    return NIN(modules)
