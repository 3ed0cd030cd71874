"""Small convolutional networks, one layer after the other, described as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..runtime.seeds import Dropout, DropoutStream
from .activation_registry import ActivationSpec
from .layers import LRN, ConvSpec, DenseSpec, LayerBuilder
from .network import LayeredNetwork, Network, NetworkSpec

Pooling = Callable[[int, int, DropoutStream | None], nn.Module]


def max_pool(window: int, stride: int, stream: DropoutStream | None = None) -> nn.Module:
    """Max pooling; windows that reach over the border are cut there, as in Caffe."""
    return nn.MaxPool2d(window, stride, ceil_mode=True)


def average_pool(window: int, stride: int, stream: DropoutStream | None = None) -> nn.Module:
    """Average pooling; windows that reach over the border are cut there, as in Caffe."""
    # Without padding, count_include_pad changes nothing, but compiled code divides the gradients of
    # cut windows by the size of whole ones unless it is False (pytorch/pytorch#198119).
    return nn.AvgPool2d(window, stride, ceil_mode=True, count_include_pad=False)


@dataclass(frozen=True)
class PoolSpec:
    """Pooling by `max_pool`, `average_pool` or a function like them.

    Without a name, it is called as the layer before it, with ``_pool`` at the end.
    """

    pooling: Pooling
    window: int = 3
    stride: int = 2
    name: str | None = None


@dataclass(frozen=True)
class DropoutSpec:
    """Dropout with probability ``p`` of a zero."""

    p: float


class GlobalAverage(nn.Module):
    """The mean over all positions: (N, C, H, W) to (N, C), in float32 or better."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3), dtype=torch.promote_types(x.dtype, torch.float32))


LayerSpec = ConvSpec | DenseSpec | PoolSpec | DropoutSpec | type[LRN | GlobalAverage]


@dataclass(frozen=True)
class SequentialSpec(NetworkSpec):
    """A network of one layer after the other.

    Example:
        >>> layers = (ConvSpec("conv", 4, 3), PoolSpec(max_pool, 2), DenseSpec("y", 10, acts=False))
        >>> spec = SequentialSpec(channels=1, size=8, classes=10, layers=layers)
        >>> spec.build("relu")(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    layers: tuple[LayerSpec, ...]

    def incompatibility(self, act: ActivationSpec) -> str | None:
        pieces = any(isinstance(s, ConvSpec | DenseSpec) and s.pieces > 1 for s in self.layers)
        if pieces and not act.joins:
            return "its units have several pieces, which maxout or probout join"
        return None if pieces else super().incompatibility(act)

    def build_network(self, builder: LayerBuilder) -> Network:
        return self.build_layers(builder)

    def build_layers(self, builder: LayerBuilder) -> SequentialNetwork:
        """The network of the layers alone, which may be a part of another."""
        network = SequentialNetwork()
        name, channels, size = "input", self.channels, self.size
        for spec in self.layers:
            if isinstance(spec, ConvSpec | DenseSpec):
                name = spec.name
                network.add_module(name, builder.layer(spec, channels, size))
                channels, size = spec.channels, spec.output_size(size)
            elif isinstance(spec, PoolSpec):
                name = spec.name or name
                pool = spec.pooling(spec.window, spec.stride, builder.dropout)
                network.add_module(spec.name or f"{name}_pool", pool)
                size = -(-(size - spec.window) // spec.stride) + 1
            elif isinstance(spec, DropoutSpec):
                network.add_module(f"{name}_dropout", Dropout(spec.p, builder.dropout))
            else:
                network.add_module(f"{name}_norm" if spec is LRN else "mean", spec())
        return network


class SequentialNetwork(LayeredNetwork):
    """Named modules, one after the other; the last one gives the logits.

    Shape:
        Input (N, C, H, W) as its description says; output (N, classes).
    """

    def forward(self, x: Tensor) -> Tensor:
        for module in self.children():
            x = module(x)
        return x.flatten(1)
