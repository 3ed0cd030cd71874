"""GoogLeNet (Szegedy et al., 2014) as BVLC trained it with Caffe, with any activation.

No batch normalisation, two layers of local response normalisation, two auxiliary heads that are
there in training only. torchvision's GoogLeNet is another network.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..runtime.seeds import Dropout, DropoutStream
from ..util.patience import PATIENCE
from .activation_registry import Site
from .layers import LRN, Layer, Layered, convolution, dense, xavier
from .network import Making, Plan

SIZE = 224
AUXILIARY = 0.3  # weight of each auxiliary loss
BIAS = 0.2  # what biases of layers with an activation start at


class Widths(NamedTuple):
    """Channels of the six convolutions of an inception block."""

    one: int
    three_reduce: int
    three: int
    five_reduce: int
    five: int
    pool: int

    @property
    def outputs(self) -> int:
        """Channels that come out of the block."""
        return self.one + self.three + self.five + self.pool


INCEPTIONS: dict[str, Widths] = {
    "3a": Widths(64, 96, 128, 16, 32, 32),
    "3b": Widths(128, 128, 192, 32, 96, 64),
    "4a": Widths(192, 96, 208, 16, 48, 64),
    "4b": Widths(160, 112, 224, 24, 64, 64),
    "4c": Widths(128, 128, 256, 24, 64, 64),
    "4d": Widths(112, 144, 288, 32, 64, 64),
    "4e": Widths(256, 160, 320, 32, 128, 128),
    "5a": Widths(256, 160, 320, 32, 128, 128),
    "5b": Widths(384, 192, 384, 48, 128, 128),
}
POOLED_AFTER = ("3b", "4e")
HEADS_AFTER = ("4a", "4d")


class _Maker:
    """Makes layers with the network's activation, from its random streams."""

    def __init__(self, making: Making) -> None:
        self.making = making
        self.weights, self.draws = making.streams()

    def conv(self, inputs: int, outputs: int, kernel: int, size: int, stride: int = 1) -> Layer:
        """A convolution with its activation; ``size`` is that of its output."""
        linear = convolution(
            inputs,
            outputs,
            kernel,
            xavier,
            self.weights,
            stride=stride,
            padding=kernel // 2,
            bias=BIAS,
        )
        return Layer(linear, self._act(outputs, size))

    def dense(self, inputs: int, outputs: int) -> Layer:
        """A dense layer with its activation."""
        return Layer(dense(inputs, outputs, xavier, self.weights, bias=BIAS), self._act(outputs, 1))

    def classifier(self, inputs: int, classes: int) -> Layer:
        """A dense layer without activation."""
        return Layer(dense(inputs, classes, xavier, self.weights), nn.Identity())

    def _act(self, channels: int, size: int) -> nn.Module:
        return self.making.act(Site(channels, size, size, self.draws))


def _halve() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)


class Inception(nn.Module):
    """Four branches side by side: 1 x 1, 3 x 3, 5 x 5 and a pooled one.

    Shape:
        Input (N, inputs, H, W); output (N, widths.outputs, H, W).
    """

    def __init__(self, inputs: int, widths: Widths, size: int, make: _Maker) -> None:
        super().__init__()
        self.one = make.conv(inputs, widths.one, 1, size)
        self.three_reduce = make.conv(inputs, widths.three_reduce, 1, size)
        self.three = make.conv(widths.three_reduce, widths.three, 3, size)
        self.five_reduce = make.conv(inputs, widths.five_reduce, 1, size)
        self.five = make.conv(widths.five_reduce, widths.five, 5, size)
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.pool_project = make.conv(inputs, widths.pool, 1, size)

    def forward(self, x: Tensor) -> Tensor:
        branches = (
            self.one(x),
            self.three(self.three_reduce(x)),
            self.five(self.five_reduce(x)),
            self.pool_project(self.pool(x)),
        )
        return torch.cat(branches, 1)


def _head(inputs: int, classes: int, make: _Maker, stream: DropoutStream | None) -> nn.Sequential:
    """An auxiliary classifier on features (N, inputs, 14, 14)."""
    return nn.Sequential(
        OrderedDict(
            pool=nn.AvgPool2d(5, stride=3),  # 14 -> 4
            conv=make.conv(inputs, 128, 1, size=4),
            fc=make.dense(128 * 4 * 4, 1024),
            dropout=Dropout(0.7, stream),
            classifier=make.classifier(1024, classes),
        )
    )


class GoogLeNet(Layered):
    """GoogLeNet for images of 224 x 224 pixels.

    Args:
        classes: The number of classes.
        make: Makes its layers.
        heads: Whether there are auxiliary heads; without them it trains on the main loss alone.
        stream: Where dropout draws from.

    Shape:
        Input (N, 3, 224, 224); output (N, classes): logits.
    """

    def __init__(
        self, classes: int, make: _Maker, heads: bool, stream: DropoutStream | None
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            OrderedDict(
                conv1=make.conv(3, 64, 7, size=112, stride=2),
                pool1=_halve(),
                norm1=LRN(),
                conv2_reduce=make.conv(64, 64, 1, size=56),
                conv2=make.conv(64, 192, 3, size=56),
                norm2=LRN(),
                pool2=_halve(),
            )
        )
        self.inceptions, self.heads = nn.ModuleDict(), nn.ModuleDict()
        self.halve = _halve()
        channels, size = 192, 28
        for name, widths in INCEPTIONS.items():
            self.inceptions[name] = Inception(channels, widths, size, make)
            channels = widths.outputs
            if heads and name in HEADS_AFTER:
                self.heads[name] = _head(channels, classes, make, stream)
            if name in POOLED_AFTER:
                size //= 2
        self.dropout = Dropout(0.4, stream)
        self.classifier = make.classifier(channels, classes)

    def _run(self, x: Tensor, heads: Mapping[str, nn.Module]) -> tuple[Tensor, ...]:
        x, extra = self.stem(x), []
        for name, inception in self.inceptions.items():
            x = inception(x)
            if name in heads:
                extra.append(heads[name](x).flatten(1))
            if name in POOLED_AFTER:
                x = self.halve(x)
        features = self.dropout(x.mean((2, 3), keepdim=True))
        return self.classifier(features).flatten(1), *extra

    def forward(self, x: Tensor) -> Tensor:
        return self._run(x, heads={})[0]

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return self._run(x, dict(self.heads.items()))

    def losses(self, outputs: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
        main, *others = (F.cross_entropy(logits, labels) for logits in outputs)
        return main + AUXILIARY * sum(others), main

    def layers(self) -> Iterator[tuple[str, Layer]]:
        """Convolutions and dense layers from low to high, those of the heads last."""
        return iter(sorted(super().layers(), key=lambda layer: layer[0].startswith("heads")))


@dataclass(frozen=True)
class GoogLeNetPlan(Plan):
    """GoogLeNet before it is built.

    Attributes:
        heads: Whether it has auxiliary heads.
        dead_after: Without batch normalisation it may be slow to begin, as the other systems are.

    Example:
        >>> net = GoogLeNetPlan(3, SIZE, classes=1000, heads=False).build("relu")
        >>> sum(p.numel() for p in net.parameters()), len(list(net.sites()))
        (6998552, 57)
    """

    heads: bool = True
    dead_after: int = field(default=PATIENCE, kw_only=True)

    def made(self, making: Making) -> GoogLeNet:
        return GoogLeNet(self.classes, _Maker(making), self.heads, making.dropout)


PLANS = {
    "googlenet-imagenette": GoogLeNetPlan(3, SIZE, classes=10),
    "googlenet-imagenet": GoogLeNetPlan(3, SIZE, classes=1000),
}
