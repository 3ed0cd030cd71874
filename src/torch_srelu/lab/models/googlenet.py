"""GoogLeNet (Szegedy et al., 2014) as BVLC trained it with Caffe, with any activation.

No batch normalisation, two layers of local response normalisation, two auxiliary heads that are
there in training only. torchvision's GoogLeNet is another network.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..runtime.seeds import Dropout
from ..util.package_files import read_toml
from .layers import LRN, ActivatedLayer, ConvSpec, DenseSpec, LayerBuilder, xavier
from .network import LayeredNetwork, NetworkSpec

SIZE = 224
AUXILIARY = 0.3  # weight of each auxiliary loss
BIAS = 0.2  # what biases of layers with an activation start at


class InceptionWidths(NamedTuple):
    """Channels of the six convolutions of an inception block."""

    one: int
    three_reduce: int
    three: int
    five_reduce: int
    five: int
    pool: int


INCEPTIONS = {
    name: InceptionWidths(*widths)
    for name, widths in read_toml("torch_srelu.lab.models", "inceptions.toml").items()
}
POOLED_AFTER = ("3b", "4e")
HEADS_AFTER = ("4a", "4d")


def _conv(
    builder: LayerBuilder, inputs: int, outputs: int, kernel: int, size: int, stride: int = 1
) -> ActivatedLayer:
    """A convolution with its activation; ``size`` is that of its input."""
    options = {"stride": stride, "initializer": xavier, "bias": BIAS}
    return builder.layer(ConvSpec("", outputs, kernel, kernel // 2, **options), inputs, size)


def _dense(builder: LayerBuilder, inputs: int, outputs: int, *, acts: bool) -> ActivatedLayer:
    """A dense layer; one without an activation starts with biases of 0."""
    spec = DenseSpec("", outputs, initializer=xavier, bias=BIAS if acts else 0.0, acts=acts)
    return builder.layer(spec, inputs, size=1)


def _halve() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)


class Inception(nn.Module):
    """Four branches side by side: 1 x 1, 3 x 3, 5 x 5 and a pooled one.

    Shape:
        Input (N, inputs, H, W); output (N, one + three + five + pool, H, W).
    """

    def __init__(
        self, inputs: int, widths: InceptionWidths, size: int, builder: LayerBuilder
    ) -> None:
        super().__init__()
        conv = partial(_conv, builder, size=size)
        self.one = conv(inputs, widths.one, 1)
        self.three_reduce = conv(inputs, widths.three_reduce, 1)
        self.three = conv(widths.three_reduce, widths.three, 3)
        self.five_reduce = conv(inputs, widths.five_reduce, 1)
        self.five = conv(widths.five_reduce, widths.five, 5)
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.pool_project = conv(inputs, widths.pool, 1)

    def forward(self, x: Tensor) -> Tensor:
        branches = (
            self.one(x),
            self.three(self.three_reduce(x)),
            self.five(self.five_reduce(x)),
            self.pool_project(self.pool(x)),
        )
        return torch.cat(branches, 1)


def _head(inputs: int, classes: int, builder: LayerBuilder) -> nn.Sequential:
    """An auxiliary classifier on features (N, inputs, 14, 14)."""
    return nn.Sequential(
        OrderedDict(
            pool=nn.AvgPool2d(5, stride=3),  # 14 -> 4
            conv=_conv(builder, inputs, 128, 1, size=4),
            fc=_dense(builder, 128 * 4 * 4, 1024, acts=True),
            dropout=Dropout(0.7, builder.dropout),
            classifier=_dense(builder, 1024, classes, acts=False),
        )
    )


class GoogLeNet(LayeredNetwork):
    """GoogLeNet for images of 224 x 224 pixels.

    Args:
        classes: The number of classes.
        builder: Builds its layers.
        heads: Whether there are auxiliary heads; without them it trains on the main loss alone.

    Shape:
        Input (N, 3, 224, 224); output (N, classes): logits.
    """

    def __init__(self, classes: int, builder: LayerBuilder, heads: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            OrderedDict(
                conv1=_conv(builder, 3, 64, 7, size=SIZE, stride=2),
                pool1=_halve(),
                norm1=LRN(),
                conv2_reduce=_conv(builder, 64, 64, 1, size=56),
                conv2=_conv(builder, 64, 192, 3, size=56),
                norm2=LRN(),
                pool2=_halve(),
            )
        )
        self.inceptions, self.heads = nn.ModuleDict(), nn.ModuleDict()
        self.halve = _halve()
        channels, size = 192, 28
        for name, widths in INCEPTIONS.items():
            self.inceptions[name] = Inception(channels, widths, size, builder)
            channels = widths.one + widths.three + widths.five + widths.pool
            if heads and name in HEADS_AFTER:
                self.heads[name] = _head(channels, classes, builder)
            if name in POOLED_AFTER:
                size //= 2
        self.dropout = Dropout(0.4, builder.dropout)
        self.classifier = _dense(builder, channels, classes, acts=False)

    def _all_logits(self, x: Tensor, heads: Mapping[str, nn.Module]) -> tuple[Tensor, ...]:
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
        return self._all_logits(x, heads={})[0]

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return self._all_logits(x, dict(self.heads.items()))

    def losses(self, outputs: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
        main, *others = (F.cross_entropy(logits, labels) for logits in outputs)
        return main + AUXILIARY * sum(others), main

    def layers(self) -> Iterator[tuple[str, ActivatedLayer]]:
        """As in the base class, but with the layers of the heads last."""
        return iter(sorted(super().layers(), key=lambda layer: layer[0].startswith("heads")))


@dataclass(frozen=True)
class GoogLeNetSpec(NetworkSpec):
    """Describes GoogLeNet.

    Attributes:
        heads: Whether it has auxiliary heads.

    Example:
        >>> net = GoogLeNetSpec(3, SIZE, classes=1000, heads=False).build("relu")
        >>> sum(p.numel() for p in net.parameters()), len(list(net.activations()))
        (6998552, 57)
    """

    heads: bool = True

    def build_network(self, builder: LayerBuilder) -> GoogLeNet:
        return GoogLeNet(self.classes, builder, self.heads)


NETWORKS = {
    "googlenet-imagenette": GoogLeNetSpec(3, SIZE, classes=10),
    "googlenet-imagenet": GoogLeNetSpec(3, SIZE, classes=1000),
}
