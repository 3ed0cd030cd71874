"""The calls that SReLU can stand in for, and the parameters that make it the same function."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The modules, and the names of the functions that do the same.
MODULES: dict[type, str] = {
    nn.ReLU: "relu",
    nn.LeakyReLU: "leaky_relu",
    nn.PReLU: "prelu",
    nn.ReLU6: "relu6",
    nn.Hardtanh: "hardtanh",
}


@dataclass(frozen=True)
class Activation:
    """One call of a rectifier, as SReLU sees it.

    Where ``a_r`` is 1 the right threshold has no effect: it gets the paper's "any positive number".
    ``slope`` is the weight of a PReLU, which takes the place of the number ``a_l``.
    """

    kind: type  # the module that does the same
    t_r: float = 1.0
    a_r: float = 1.0
    t_l: float = 0.0
    a_l: float = 0.0
    slope: Tensor | None = None
    inplace: bool = False

    @property
    def name(self) -> str:
        """Its name among modules."""
        return self.kind.__name__

    @property
    def function(self) -> str:
        """Its name among functions."""
        return MODULES[self.kind]

    def same(self, other: Activation) -> bool:
        """Whether one SReLU can be both."""
        numbers = (self.t_r, self.a_r, self.t_l, self.a_l)
        return numbers == (other.t_r, other.a_r, other.t_l, other.a_l) and self.slope is other.slope


def recognise(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Activation | None:
    """The activation that ``func(*args, **kwargs)`` computes, or None if it is not one of ours."""
    read = FUNCTIONS.get(func)
    return None if read is None else read(*args, **kwargs)


def is_activation(callee: object) -> bool:
    """Whether calling this object, a function or a module, is calling a rectifier."""
    while isinstance(callee, functools.partial):
        callee = callee.func
    if isinstance(callee, nn.Module):
        return type(callee) in MODULES
    return callable(callee) and isinstance(callee, Hashable) and callee in FUNCTIONS


# What follows has the signatures of torch's functions and reads what they would compute.


def _relu(input: Tensor, inplace: bool = False) -> Activation:
    return Activation(nn.ReLU, inplace=inplace)


def _leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Activation:
    return Activation(nn.LeakyReLU, a_l=float(negative_slope), inplace=inplace)


def _prelu(input: Tensor, weight: Tensor) -> Activation:
    return Activation(nn.PReLU, a_l=0.25, slope=weight)


def _relu6(input: Tensor, inplace: bool = False) -> Activation:
    return Activation(nn.ReLU6, t_r=6.0, a_r=0.0, inplace=inplace)


def _hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Activation:
    activation = Activation(
        nn.Hardtanh, t_r=float(max_val), a_r=0.0, t_l=float(min_val), inplace=inplace
    )
    # Where there is no bound there is no threshold either: the identity goes on.
    if max_val == math.inf:
        activation = replace(activation, t_r=1.0, a_r=1.0)
    if min_val == -math.inf:
        activation = replace(activation, t_l=0.0, a_l=1.0)
    return activation


FUNCTIONS: dict[Callable, Callable[..., Activation]] = {
    F.relu: _relu,
    torch.relu: _relu,
    Tensor.relu: _relu,
    torch.relu_: functools.partial(_relu, inplace=True),  # F.relu_ is the same object
    Tensor.relu_: functools.partial(_relu, inplace=True),
    F.leaky_relu: _leaky_relu,
    F.leaky_relu_: functools.partial(_leaky_relu, inplace=True),
    torch.prelu: _prelu,  # F.prelu is the same object
    Tensor.prelu: _prelu,
    F.relu6: _relu6,
    F.hardtanh: _hardtanh,
    F.hardtanh_: functools.partial(_hardtanh, inplace=True),
}
