"""Convolutions and dense layers: what describes them, what initializes them, what builds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..runtime.seeds import DropoutStream, generator
from .activation_registry import ActivationContext, ActivationSpec
from .convolutions import convolve_and_activate

Initializer = Callable[[Tensor, torch.Generator], object]


def normal(std: float) -> Initializer:
    """Weights from the normal distribution with mean 0 and standard deviation ``std``."""
    return lambda weight, draws: weight.normal_(0, std, generator=draws)


def uniform(bound: float) -> Initializer:
    """Weights from the uniform distribution on [-bound, bound)."""
    return lambda weight, draws: weight.uniform_(-bound, bound, generator=draws)


def he(weight: Tensor, draws: torch.Generator) -> None:
    """Normal with standard deviation sqrt(2 / fan_in)."""
    weight.normal_(0, math.sqrt(2 / weight[0].numel()), generator=draws)


def xavier(weight: Tensor, draws: torch.Generator) -> None:
    """Uniform with variance 1 / fan_in, as in Caffe."""
    bound = math.sqrt(3 / weight[0].numel())
    weight.uniform_(-bound, bound, generator=draws)


@dataclass(frozen=True, kw_only=True)
class _LayerSpec:
    """What convolutions and dense layers have in common.

    Attributes:
        initializer: Of the weights.
        bias: Initial value of the biases.
        pieces: Inputs of the activation for each of its outputs (maxout).
        acts: Whether an activation follows.
        weight_lr: Factor on the learning rate of the weights, which are decayed.
        bias_lr: Factor on the learning rate of the biases, which are not.
        max_norm: Largest L2 norm of the weights into one output; None for no limit.
        key: What the weights are called in state_dicts.
    """

    initializer: Initializer = he
    bias: float = 0.0
    pieces: int = 1
    acts: bool = True
    weight_lr: float = 1.0
    bias_lr: float = 2.0
    max_norm: float | None = None
    key: str = "linear"

    def _initialized(self, module: nn.Module, draws: torch.Generator) -> nn.Conv2d | nn.Linear:
        assert isinstance(module, nn.Conv2d | nn.Linear)
        with torch.no_grad():
            self.initializer(module.weight, draws)
            assert module.bias is not None
            module.bias.fill_(self.bias)
        return module


@dataclass(frozen=True)
class ConvSpec(_LayerSpec):
    """A convolution; after its activation there are ``channels`` channels."""

    name: str
    channels: int
    kernel: int = 1
    padding: int = 0
    stride: int = 1

    def output_size(self, size: int) -> int:
        """Side of the output for an input of side ``size``."""
        return (size + 2 * self.padding - self.kernel) // self.stride + 1

    def build(self, channels: int, size: int, draws: torch.Generator) -> nn.Conv2d | nn.Linear:
        """The convolution for inputs (N, channels, size, size), initialized from ``draws``."""
        # skip_init: the default initialization would draw from torch's global random state.
        shape = (channels, self.channels * self.pieces, self.kernel)
        conv = nn.utils.skip_init(nn.Conv2d, *shape, stride=self.stride, padding=self.padding)
        return self._initialized(conv, draws)


@dataclass(frozen=True)
class DenseSpec(_LayerSpec):
    """A fully connected layer; after its activation there are ``channels`` channels."""

    name: str
    channels: int

    def output_size(self, size: int) -> int:
        """1, whatever the input."""
        return 1

    def build(self, channels: int, size: int, draws: torch.Generator) -> nn.Conv2d | nn.Linear:
        """The linear map of flattened inputs (N, channels, size, size)."""
        inputs, outputs = channels * size**2, self.channels * self.pieces
        return self._initialized(nn.utils.skip_init(nn.Linear, inputs, outputs), draws)


class ParameterRate(NamedTuple):
    """How one parameter learns: a factor on the run's learning rate, and its weight decay."""

    parameter: Tensor
    factor: float
    decay: float


class ActivatedLayer(nn.Module):
    """A convolution or a dense layer, and the activation on its outputs.

    A dense layer flattens its input and gives (N, C, 1, 1), so that every activation gets four
    dimensions.

    Args:
        spec: What it is built from.
        weights: `torch.nn.Conv2d` or `torch.nn.Linear`, as ``spec.build`` returns them.
        act: The activation.
    """

    def __init__(
        self, spec: ConvSpec | DenseSpec, weights: nn.Conv2d | nn.Linear, act: nn.Module
    ) -> None:
        super().__init__()
        self.spec = spec
        self.add_module(spec.key, weights)
        self.act = act

    @property
    def weights(self) -> nn.Conv2d | nn.Linear:
        """The convolution or the linear map."""
        return getattr(self, self.spec.key)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.weights
        if isinstance(weights, nn.Linear):
            return self.act(weights(x.flatten(1))[:, :, None, None])
        return convolve_and_activate(weights, self.act, x)

    def rates(self, weight_decay: float) -> Iterator[ParameterRate]:
        """How its parameters learn.

        Those of the activation at the full rate, with the weight decay that its attribute
        ``weight_decay`` says, 0 without one.
        """
        yield ParameterRate(self.weights.weight, self.spec.weight_lr, weight_decay)
        assert self.weights.bias is not None
        yield ParameterRate(self.weights.bias, self.spec.bias_lr, 0.0)
        for parameter in self.act.parameters():
            yield ParameterRate(parameter, 1.0, getattr(self.act, "weight_decay", 0.0))

    def extra_repr(self) -> str:
        spec = self.spec
        limit = "" if spec.max_norm is None else f", max_norm={spec.max_norm}"
        return f"weight_lr={spec.weight_lr}, bias_lr={spec.bias_lr}{limit}"


class LayerBuilder:
    """Builds the layers of one network, all with the same activation.

    Weights and parameters of activations are drawn from two random streams of the run, so that
    equal seeds give equal weights for every activation.

    Args:
        activation: The activation.
        options: Its options.
        seed: Seeds both streams.
        dropout: The random stream of dropout and the like; needed for training only.
    """

    def __init__(
        self,
        activation: ActivationSpec,
        options: Mapping[str, Any],
        seed: int,
        dropout: DropoutStream | None,
    ) -> None:
        self.activation, self.options = activation, options
        self.seed, self.dropout, self.depth = seed, dropout, 0
        self.weights, self.draws = generator(seed, "weights"), generator(seed, "activation")

    def layer(self, spec: ConvSpec | DenseSpec, channels: int, size: int) -> ActivatedLayer:
        """The layer for inputs (N, channels, size, size), initialized, with its activation."""
        weights = spec.build(channels, size, self.weights)
        if not spec.acts:
            return ActivatedLayer(spec, weights, nn.Identity())
        side = spec.output_size(size)
        shape = (spec.channels, side, side)
        context = ActivationContext(*shape, self.draws, spec.pieces, self.depth, self.dropout)
        self.depth += 1
        return ActivatedLayer(spec, weights, self.activation.build(context, **self.options))


@torch.no_grad()
def limit_norm(weight: Tensor, largest: float) -> None:
    """Scales down, in place, the weights into each output to an L2 norm of ``largest`` at most.

    Args:
        weight: (outputs, ...): kernels of a convolution, or rows of a dense layer.
        largest: The largest norm that stays as it is.

    Example:
        >>> weight = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
        >>> limit_norm(weight, 1.0)
        >>> weight
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    dims = tuple(range(1, weight.dim()))
    norm = torch.linalg.vector_norm(weight, dim=dims, keepdim=True)
    weight.mul_((largest / norm).clamp_max(1))  # a norm of 0 gives inf, and the factor 1


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
            total = self._sum_over_neighbors(wide.square())
            return (wide * (1 + self.alpha / self.size * total).pow(-self.beta)).to(x.dtype)

    def _sum_over_neighbors(self, squares: Tensor) -> Tensor:
        channels, radius = squares.shape[1], self.size // 2
        if torch.compiler.is_compiling():  # shifted copies, added up in one pass
            padded = F.pad(squares, (0, 0, 0, 0, radius, radius))
            total = padded.narrow(1, 0, channels)
            for i in range(1, self.size):
                total = total + padded.narrow(1, i, channels)
            return total
        channel = torch.arange(channels, device=squares.device)
        near = (channel[:, None] - channel).abs() <= radius  # (C, C), a band
        return F.conv2d(squares, near.to(squares.dtype)[:, :, None, None])

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}"
