"""The activations that SReLU can replace, and the parameters that make it the same function."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..module import NAMES

# The modules, and the names of the functions that do the same.
MODULES: dict[type, str] = {
    nn.ReLU: "relu",
    nn.LeakyReLU: "leaky_relu",
    nn.PReLU: "prelu",
    nn.ReLU6: "relu6",
    nn.Hardtanh: "hardtanh",
}


class Rectifier(NamedTuple):
    """The activation that one call computes, as parameters of SReLU.

    Where ``a_r`` is 1 the right threshold has no effect: it gets the paper's "any positive number".
    ``slope`` is the weight of a PReLU, which replaces the number ``a_l``.
    """

    kind: type  # the class of modules that compute the same
    t_r: float = 1.0
    a_r: float = 1.0
    t_l: float = 0.0
    a_l: float = 0.0
    slope: Tensor | None = None
    inplace: bool = False

    @property
    def name(self) -> str:
        """The name of the module."""
        return self.kind.__name__

    @property
    def function(self) -> str:
        """The name of the function."""
        return MODULES[self.kind]

    @property
    def initial(self) -> dict[str, float]:
        """The initial values of the parameters of SReLU."""
        return {name: getattr(self, name) for name in NAMES}

    def same(self, other: Self) -> bool:
        """Whether one SReLU can replace both."""
        return self.initial == other.initial and self.slope is other.slope


def activation_name(callee: object) -> str | None:
    """The name of the module that computes the same as this one or this function, if any does."""
    while isinstance(callee, functools.partial):
        callee = callee.func
    if isinstance(callee, nn.Module):
        return type(callee).__name__ if type(callee) in MODULES else None
    if not isinstance(callee, Hashable) or callee not in FUNCTIONS:
        return None
    name = callee.__name__.rstrip("_")  # type: ignore[attr-defined]
    return next(kind.__name__ for kind, function in MODULES.items() if function == name)


# These have the signatures of torch's functions and return what those would compute.


def _relu(input: Tensor, inplace: bool = False) -> Rectifier:
    return Rectifier(nn.ReLU, inplace=inplace)


def _leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Rectifier:
    return Rectifier(nn.LeakyReLU, a_l=float(negative_slope), inplace=inplace)


def _prelu(input: Tensor, weight: Tensor) -> Rectifier:
    return Rectifier(nn.PReLU, a_l=0.25, slope=weight)


def _relu6(input: Tensor, inplace: bool = False) -> Rectifier:
    return Rectifier(nn.ReLU6, t_r=6.0, a_r=0.0, inplace=inplace)


def _hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Rectifier:
    # Without a bound there is no threshold either: the identity continues.
    right = (1.0, 1.0) if max_val == math.inf else (float(max_val), 0.0)
    left = (0.0, 1.0) if min_val == -math.inf else (float(min_val), 0.0)
    return Rectifier(nn.Hardtanh, *right, *left, inplace=inplace)


# What each function computes, from its arguments.
FUNCTIONS: dict[Callable, Callable[..., Rectifier]] = {
    **dict.fromkeys((F.relu, torch.relu, Tensor.relu), _relu),
    # F.relu_ is the same object as torch.relu_, and F.prelu as torch.prelu.
    **dict.fromkeys((torch.relu_, Tensor.relu_), functools.partial(_relu, inplace=True)),
    F.leaky_relu: _leaky_relu,
    F.leaky_relu_: functools.partial(_leaky_relu, inplace=True),
    **dict.fromkeys((torch.prelu, Tensor.prelu), _prelu),
    F.relu6: _relu6,
    F.hardtanh: _hardtanh,
    F.hardtanh_: functools.partial(_hardtanh, inplace=True),
}
