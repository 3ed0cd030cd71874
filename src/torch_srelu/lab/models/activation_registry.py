"""Activations by name.

A new one is registered with a function that builds its module for one layer. The keyword arguments
of the function, which need defaults, become options of a run:

    from torch import nn
    from torch_srelu.lab.models.activation_registry import ActivationContext, register

    @register("elu")
    def build_elu(context: ActivationContext, alpha: float = 1.0) -> nn.Module:
        return nn.ELU(alpha)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter

from torch_srelu import SReLU

from ..runtime.seeds import DropoutStream
from ..util.choices import check_choice
from .rivals.maxout import Maxout, ProbMaxout


@dataclass(frozen=True)
class ActivationContext:
    """What is known of the layer that an activation is built for.

    Attributes:
        num_channels: Channels of the activation's output.
        height: Height of the output; 1 after a dense layer.
        width: Its width.
        generator: The run's random stream for initial parameters: draw from nothing else, so that
            equal seeds give equal networks.
        pieces: Inputs of each output channel, for activations that join several into one.
        depth: Number of activations before this one.
        stream: The run's random stream of training, for activations that draw in it; None where
            the network is only evaluated.
    """

    num_channels: int
    height: int
    width: int
    generator: torch.Generator
    pieces: int = 1
    depth: int = 0
    stream: DropoutStream | None = None


@dataclass(frozen=True)
class ActivationSpec:
    """A registered activation.

    Attributes:
        name: What the user types.
        build: Builds the module for one layer; its keyword arguments are the options.
        adapts: Whether training freezes it at first and then sets it from its inputs
            (`torch_srelu.AdaptiveInit`).
        joins: Whether it joins several inputs into one output, and so needs a network whose layers
            have ``pieces``.
        is_srelu: Whether its modules are `torch_srelu.SReLU`.
    """

    name: str
    build: Callable[..., nn.Module]
    adapts: bool = False
    joins: bool = False
    is_srelu: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The names of the options with their defaults."""
        parameters = list(inspect.signature(self.build).parameters.values())[1:]
        return {p.name: p.default for p in parameters}

    def check(self, options: Mapping[str, Any]) -> None:
        """Raises ValueError if an option does not exist or has another type than its default."""
        known = self.options
        for name, value in options.items():
            if not known:
                raise ValueError(f"{self.name} has no options, got {name}={value!r}: leave it out")
            check_choice(f"option of {self.name}", name, known)
            expected = type(known[name])
            right = isinstance(value, (int, float) if expected is float else expected)
            if not right or isinstance(value, bool):
                raise ValueError(
                    f"option {name} of {self.name} must be like its default {known[name]!r}, "
                    f"got {value!r}"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"option {name} of {self.name} must be finite, got {value}")


ACTIVATIONS: dict[str, ActivationSpec] = {}


Build = Callable[..., nn.Module]


def register(name: str, **traits: bool) -> Callable[[Build], Build]:
    """Decorator that registers a function ``(context, **options) -> module`` under a name.

    The parameters of the module learn at the run's full rate, without weight decay unless the
    module has an attribute ``weight_decay``.

    Args:
        name: What the user types; a name that exists is replaced.
        traits: Any of ``adapts``, ``joins`` and ``is_srelu``, see `ActivationSpec`.
    """

    def add(build: Build) -> Build:
        ACTIVATIONS[name] = ActivationSpec(name, build, **traits)
        return build

    return add


def activation(name: str) -> ActivationSpec:
    """The registered activation of that name.

    Example:
        >>> activation("lrelu").options
        {'slope': 0.01}
    """
    check_choice("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]


class APL(nn.Module):
    """Adaptive piecewise linear unit (Agostinelli et al., 2014).

        h(x) = max(0, x) + sum_s a_s max(0, b_s - x)

    Args:
        shape: Shape of one hinge's parameters: (C, 1, 1) for one set per channel, (C, H, W) for one
            per neuron, as published.
        hinges: The number S of hinges.
        generator: Draws a from U(-0.5, 0.5) and b from N(0, 0.5).

    Example:
        >>> apl = APL((16, 1, 1), hinges=2, generator=torch.Generator().manual_seed(0))
        >>> sum(p.numel() for p in apl.parameters())
        64
    """

    weight_decay = 1e-3  # published: an L2 penalty of its own on slopes and offsets

    def __init__(
        self, shape: tuple[int, int, int], hinges: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.a = Parameter(torch.rand((hinges, *shape), generator=generator) - 0.5)
        self.b = Parameter(torch.randn((hinges, *shape), generator=generator) * 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = x.clamp_min(0)
        for a, b in zip(self.a.to(x.dtype), self.b.to(x.dtype), strict=True):
            y = torch.addcmul(y, a, (b - x).clamp_min(0))
        return y

    def extra_repr(self) -> str:
        hinges, *shape = self.a.shape
        return f"{tuple(shape)}, hinges={hinges}"


register("relu")(lambda context: nn.ReLU())
register("lrelu")(lambda context, slope=0.01: nn.LeakyReLU(slope))
register("prelu")(lambda context, slope=0.25: nn.PReLU(context.num_channels, init=slope))


@register("apl")
def _apl(context: ActivationContext, hinges: int = 2, per: str = "channel") -> nn.Module:
    check_choice("value of the option per of apl", per, ("channel", "neuron"))
    if hinges < 0:
        raise ValueError(f"option hinges of apl must not be negative, got {hinges}")
    height, width = (1, 1) if per == "channel" else (context.height, context.width)
    return APL((context.num_channels, height, width), hinges, context.generator)


@register("srelu", adapts=True, is_srelu=True)
def _srelu(context: ActivationContext, a_l: float = 0.2) -> nn.Module:
    return SReLU(context.num_channels, a_l=a_l)


@register("srelu-shared", adapts=True, is_srelu=True)
def _srelu_shared(context: ActivationContext, a_l: float = 0.2) -> nn.Module:
    return SReLU(1, a_l=a_l)


@register("srelu-manual", is_srelu=True)
def _srelu_manual(context: ActivationContext, t_r: float = 1.0, a_l: float = 0.2) -> nn.Module:
    return SReLU(context.num_channels, t_r=t_r, a_l=a_l)


register("gelu")(lambda context: nn.GELU())
register("silu")(lambda context: nn.SiLU())
register("maxout", joins=True)(lambda context: Maxout(context.pieces))


@register("probout", joins=True)
def _probout(context: ActivationContext, sharpness: float = 1.0) -> nn.Module:
    # The first layer's; later layers are sharper. How sharp is not published: this is ours.
    return ProbMaxout(context.pieces, sharpness * (1 + context.depth), context.stream)
