"""Stochastic pooling (Zeiler & Fergus, 2013) and its network.

Three convolutions of 64 maps, each with ReLU, stochastic pooling and local response normalisation,
then one dense layer. Ours are: how weights are initialized, and the size and strength of the
normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...runtime.seeds import DropoutStream, StochasticModule
from ..activation_registry import ActivationSpec
from ..layers import LRN, ConvSpec, DenseSpec
from ..sequential import PoolSpec, SequentialSpec


class StochasticPool2d(StochasticModule):
    """Pooling that draws one value a window, each with probability proportional to itself.

        training: y = x_i with probability p_i = x_i / sum_j x_j;   test: y = sum_i p_i x_i

    Both give 0 for a window of zeros. The windows that reach over the border are cut there.
    Probabilities need inputs that are not negative: anything else is an error, raised wherever
    the values can be looked at, that is not while a CUDA graph is being captured.

    Args:
        window: Side of a window.
        stride: Step from one window to the next.
        stream: Where training draws from.

    Shape:
        Input (N, C, H, W); output (N, C, h, w) with h = ceil((H - window) / stride) + 1.

    Example:
        >>> pool = StochasticPool2d(2, 2).eval()
        >>> pool(torch.tensor([[[[1.0, 3.0], [0.0, 0.0]]]]))  # (1 + 9) / (1 + 3)
        tensor([[[[2.5000]]]])
    """

    def __init__(self, window: int, stride: int, stream: DropoutStream | None = None) -> None:
        super().__init__(stream)
        self.window, self.stride = window, stride

    def forward(self, x: Tensor) -> Tensor:
        capturing = x.is_cuda and torch.cuda.is_current_stream_capturing()
        if not capturing and bool((x < 0).any()):
            raise ValueError(
                "stochastic pooling draws each value with a probability proportional to it, and "
                f"got negative ones (down to {x.min().item():g}): let ReLU come before it"
            )
        if not self.training:
            return self._expectation(x)
        # Zeros beyond the border fill the cut windows: they are never drawn before a value.
        height, width = (-(size - self.window) % self.stride for size in x.shape[2:])
        x = F.pad(x, (0, width, 0, height))
        for dim in (2, 3):
            x = x.unfold(dim, self.window, self.stride)
        values = x.flatten(-2)  # (N, C, h, w, window^2)
        wide = values.to(torch.promote_types(x.dtype, torch.float32))
        return self.own_stream().draw(values, wide)

    def _expectation(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        # Both means are over the same values: their number cancels.
        square, mean = (
            F.avg_pool2d(value, self.window, self.stride, ceil_mode=True)
            for value in (wide.square(), wide)
        )
        return (square / torch.where(mean == 0, 1, mean)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.window}, stride={self.stride}"


@dataclass(frozen=True)
class StochasticPoolingSpec(SequentialSpec):
    """A network with stochastic pooling after its activations."""

    def incompatibility(self, act: ActivationSpec) -> str | None:
        if act.name == "relu":
            return None
        return (
            "stochastic pooling draws each value with a probability proportional to it, and "
            f"{act.name} can give negative values; choose relu"
        )


def _network(channels: int, size: int, classes: int) -> StochasticPoolingSpec:
    convolutions = [
        layer
        for name in ("conv1", "conv2", "conv3")
        for layer in (ConvSpec(name, 64, 5, padding=2), PoolSpec(StochasticPool2d), LRN)
    ]
    return StochasticPoolingSpec(
        channels, size, classes, (*convolutions, DenseSpec("y", classes, acts=False))
    )


NETWORKS = {
    "stochastic-pooling-cifar10": _network(3, 32, 10),
    "stochastic-pooling-cifar100": _network(3, 32, 100),
    "stochastic-pooling-mnist": _network(1, 28, 10),
}
