"""Layers that several networks are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_srelu import SReLU, srelu

from .network import Network, Rate, activation_rates

Start = Callable[[Tensor, torch.Generator], object]
_Map = TypeVar("_Map", nn.Conv2d, nn.Linear)


def normal(std: float) -> Start:
    """Weights that start normal with deviation ``std``."""
    return lambda weight, draws: weight.normal_(0, std, generator=draws)


def uniform(bound: float) -> Start:
    """Weights that start uniform in [-bound, bound)."""
    return lambda weight, draws: weight.uniform_(-bound, bound, generator=draws)


def he(weight: Tensor, draws: torch.Generator) -> None:
    """Normal with deviation sqrt(2 / inputs of a sum)."""
    weight.normal_(0, math.sqrt(2 / weight[0].numel()), generator=draws)


def xavier(weight: Tensor, draws: torch.Generator) -> None:
    """Uniform with variance 1 / inputs of a sum: what Caffe calls so."""
    bound = math.sqrt(3 / weight[0].numel())
    weight.uniform_(-bound, bound, generator=draws)


class Layer(nn.Module):
    """A linear map and the activation on its outputs.

    A dense map sees the flattened input and gives (N, C, 1, 1), so that every activation meets
    the same four dimensions.

    Args:
        linear: `torch.nn.Conv2d` or `torch.nn.Linear`, as `convolution` and `dense` make them.
        act: The activation.
        weight_lr: Factor on the learning rate of the weights, which are decayed.
        bias_lr: Likewise for the biases, which are not.
        max_norm: Largest L2 norm of the weights into one output; None for no limit.
    """

    def __init__(
        self,
        linear: nn.Conv2d | nn.Linear,
        act: nn.Module,
        weight_lr: float = 1.0,
        bias_lr: float = 2.0,
        max_norm: float | None = None,
    ) -> None:
        super().__init__()
        self.linear, self.act = linear, act
        self.weight_lr, self.bias_lr, self.max_norm = weight_lr, bias_lr, max_norm

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.linear, nn.Linear):
            return self.act(self.linear(x.flatten(1))[:, :, None, None])
        return activated(self.linear, self.act, x)

    def rates(self, weight_decay: float) -> Iterator[Rate]:
        """How its parameters learn."""
        yield Rate(self.linear.weight, self.weight_lr, weight_decay)
        assert self.linear.bias is not None
        yield Rate(self.linear.bias, self.bias_lr, 0.0)
        yield from activation_rates(self.act)

    def extra_repr(self) -> str:
        limit = "" if self.max_norm is None else f", max_norm={self.max_norm}"
        return f"weight_lr={self.weight_lr}, bias_lr={self.bias_lr}{limit}"


class Layered(Network):
    """A network all of whose parameters are in `Layer`s."""

    def layers(self) -> Iterator[tuple[str, Layer]]:
        """Convolutions and dense layers by name, from low to high."""
        for name, module in self.named_modules():
            if isinstance(module, Layer):
                yield name, module

    def sites(self) -> Iterator[tuple[str, nn.Module]]:
        for name, layer in self.layers():
            if not isinstance(layer.act, nn.Identity):
                yield name, layer.act

    def rates(self, weight_decay: float) -> Iterator[Rate]:
        for _, layer in self.layers():
            yield from layer.rates(weight_decay)


def convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    start: Start,
    draws: torch.Generator,
    *,
    stride: int = 1,
    padding: int = 0,
    bias: float = 0.0,
) -> nn.Conv2d:
    """A convolution that starts as told, drawing from ``draws`` alone."""
    made = nn.utils.skip_init(nn.Conv2d, inputs, outputs, kernel, stride=stride, padding=padding)
    assert isinstance(made, nn.Conv2d)
    return _started(made, start, draws, bias)


def dense(
    inputs: int, outputs: int, start: Start, draws: torch.Generator, *, bias: float = 0.0
) -> nn.Linear:
    """A fully connected map that starts as told, drawing from ``draws`` alone."""
    made = nn.utils.skip_init(nn.Linear, inputs, outputs)
    assert isinstance(made, nn.Linear)
    return _started(made, start, draws, bias)


def _started(made: _Map, start: Start, draws: torch.Generator, bias: float) -> _Map:
    with torch.no_grad():
        start(made.weight, draws)
        assert made.bias is not None
        made.bias.fill_(bias)
    return made


ALIGNED = 8  # bfloat16 numbers in the 16 bytes that tensor cores want to read at once


def activated(conv: nn.Conv2d, act: nn.Module, x: Tensor) -> Tensor:
    """``act(conv(x))``, the quickest way.

    On a GPU, a convolution adds its bias in a pass of its own, and sums its gradient in another. A
    compiler fuses both with an activation that it can see into; SReLU's kernels take them along.
    """
    # Not in evaluation, where others may look at the unit's input.
    if not (act.training and x.is_cuda and isinstance(act, SReLU)):
        return act(convolve(conv, x))
    y = convolve(conv, x, biased=False)
    return srelu(y, *act.tensors(), act.dim, bias=conv.bias, frozen=act.frozen)


def convolve(conv: nn.Conv2d, x: Tensor, biased: bool = True) -> Tensor:
    """``conv(x)``, less its bias if that is not wanted; in compiled code the quickest way.

    Args:
        conv: A convolution with a bias, its kernel, stride and padding the same in both directions.
        x: Its input (N, C, H, W).
        biased: Whether to add the bias.
    """
    if torch.compiler.is_compiling() and _suits_matrices(conv, x):
        y = conv_by_matrices(x, conv.weight, conv.stride[0], int(conv.padding[0]))
        assert conv.bias is not None
        return y + conv.bias.to(y.dtype)[:, None, None] if biased else y
    return conv(x) if biased else F.conv2d(x, conv.weight, None, conv.stride, conv.padding)


def _suits_matrices(conv: nn.Conv2d, x: Tensor) -> bool:
    """Whether tensor cores cannot take its channels, and a compiler can make it of matrices."""
    pointwise = conv.kernel_size == conv.stride == (1, 1)
    odd = conv.in_channels < ALIGNED or (pointwise and conv.out_channels % ALIGNED > 0)
    # An image needs no gradient; of its windows, compiled code would make a wrong one.
    return odd and (pointwise or not x.requires_grad)


def conv_by_matrices(x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """A convolution as one product of matrices filled up with zeros.

    On a GPU, for numbers of channels that tensor cores cannot take as they are: the library's own
    convolution of 3 channels takes four to six times as long (docs/speed.md). To be compiled, which
    makes the windows in one pass. But not their gradient: for several threads of a CPU, torch 2.13
    compiles it into code that writes where it should not.

    Args:
        x: Input (N, C, H, W). Compiled, it must not need a gradient, unless K is 1.
        weight: (O, C, K, K).
        stride: Step from one window to the next.
        padding: Zeros on each side.

    Returns:
        (N, O, h, w), channels last.

    Example:
        >>> x, weight = torch.randn(2, 3, 4, 4).double(), torch.randn(5, 3, 3, 3).double()
        >>> torch.allclose(conv_by_matrices(x, weight), F.conv2d(x, weight))
        True
    """
    outputs, _, kernel, _ = weight.shape
    padded = F.pad(x, (padding,) * 4) if padding else x
    if kernel == stride == 1:
        windows = padded[..., None, None]
    else:
        windows = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)  # (N, C, h, w, K, K)
    images, _, height, width = windows.shape[:4]
    columns = windows.permute(0, 2, 3, 4, 5, 1).reshape(images * height * width, -1)
    matrix = weight.permute(0, 2, 3, 1).reshape(outputs, -1)
    missing = -matrix.shape[1] % ALIGNED
    columns = F.pad(columns, (0, missing))
    matrix = F.pad(matrix, (0, missing, 0, -outputs % ALIGNED))
    y = F.linear(columns, matrix)[:, :outputs].contiguous()
    return y.reshape(images, height, width, outputs).permute(0, 3, 1, 2)


class LRN(nn.Module):
    """Local response normalisation across channels (Krizhevsky et al., 2012), as Caffe does it.

        y_c = x_c / (1 + alpha / size * sum_d x_d^2)^beta,  d over the ``size`` channels around c

    In float32, since it adds squares, and with a gradient that does not vary from run to run.

    Args:
        size: Channels in a sum, odd.
        alpha: Strength.
        beta: Exponent.

    Shape:
        Input and output (N, C, H, W).

    Example:
        >>> LRN(3, alpha=3.0, beta=1.0)(torch.ones(1, 3, 1, 1)).flatten().tolist()
        [0.3333333432674408, 0.25, 0.3333333432674408]
    """

    def __init__(self, size: int = 5, alpha: float = 1e-4, beta: float = 0.75) -> None:
        super().__init__()
        self.size, self.alpha, self.beta = size, alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            wide = x.to(torch.promote_types(x.dtype, torch.float32))
            total = self._around(wide.square())
            return (wide * (1 + self.alpha / self.size * total).pow(-self.beta)).to(x.dtype)

    def _around(self, squares: Tensor) -> Tensor:
        """The sums over the channels around each one."""
        channels, beyond = squares.shape[1], self.size // 2
        if torch.compiler.is_compiling():  # shifted copies, added up in one pass
            padded = F.pad(squares, (0, 0, 0, 0, beyond, beyond))
            total = padded.narrow(1, 0, channels)
            for i in range(1, self.size):
                total = total + padded.narrow(1, i, channels)
            return total
        channel = torch.arange(channels, device=squares.device)
        near = (channel[:, None] - channel).abs() <= beyond  # (C, C), a band
        return F.conv2d(squares, near.to(squares.dtype)[:, :, None, None])

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}"
