"""Maxout (Goodfellow et al., 2013) and probabilistic maxout (Springenberg & Riedmiller, 2013).

A unit has k linear pieces. Maxout passes on the largest; probabilistic maxout draws one in training
and takes the expectation at test. The networks are those of the maxout paper, dropout after each
pooling. Ours are: how sharply probabilistic maxout prefers large pieces, layer by layer; that
dropout scales what it keeps, at the input too; a constant momentum.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn

from ..activations import Site
from ..choices import check_choice
from ..layers import uniform
from ..seeds import DropoutStream, required
from . import stack
from .sampling import pick
from .stack import Conv, Dense, Drop, Plan, Pool, Stack, maximum


def _pieces(z: Tensor, pieces: int) -> tuple[Tensor, ...]:
    """The pieces of all units: unit u of U has the channels u, U + u, 2 U + u, ..."""
    if z.shape[1] % pieces:
        raise ValueError(
            f"units of {pieces} pieces need a multiple of {pieces} channels, got {z.shape[1]}"
        )
    return z.chunk(pieces, dim=1)


class Maxout(nn.Module):
    """h_u = max_i z_iu over the k pieces of unit u.

    Args:
        pieces: The number k of pieces of a unit.

    Shape:
        Input (N, k U, ...); output (N, U, ...). Piece i of unit u is channel i U + u.

    Example:
        >>> Maxout(2)(torch.tensor([[1.0, -2.0, 0.5, 3.0]]))
        tensor([[1., 3.]])
    """

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, z: Tensor) -> Tensor:
        return reduce(torch.maximum, _pieces(z, self.pieces))

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}"


class ProbMaxout(nn.Module):
    """Probabilistic maxout: piece i with probability p_i = softmax(sharpness * z)_i.

    In training h_u = z_iu for a drawn piece i; at test h_u = sum_i p_i z_iu. As the sharpness
    grows, it becomes maxout.

    Args:
        pieces: The number k of pieces of a unit.
        sharpness: The factor lambda in the softmax.
        stream: Where training draws from.

    Shape:
        As `Maxout`.

    Example:
        >>> unit = ProbMaxout(2, sharpness=1.0).eval()
        >>> unit(torch.tensor([[0.0, 1.0]]))  # e / (1 + e)
        tensor([[0.7311]])
    """

    def __init__(self, pieces: int, sharpness: float, stream: DropoutStream | None = None) -> None:
        super().__init__()
        self.pieces, self.sharpness, self.stream = pieces, sharpness, stream

    def forward(self, z: Tensor) -> Tensor:
        values = torch.stack(_pieces(z, self.pieces), dim=-1)  # (N, U, ..., k)
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        chances = (self.sharpness * wide).softmax(-1)
        if self.training:
            return values.gather(-1, pick(chances, required(self.stream))).squeeze(-1)
        return (chances * wide).sum(-1).to(z.dtype)

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}, sharpness={self.sharpness}"


# How sharply each layer prefers large pieces: little in the first, more in later ones. Ours.
SHARPNESS = {"h0": 1.0, "h1": 2.0, "h2": 3.0, "h3": 4.0}

_start = uniform(0.005)


def _cifar(classes: int) -> Plan:
    slow = {"start": _start, "pieces": 2, "weight_lr": 0.05, "bias_lr": 0.05}
    layers = (
        Drop(0.2),
        Conv("h0", 96, 8, padding=4, max_norm=0.9, **slow),
        Pool(maximum, 4, 2),
        Drop(0.5),
        Conv("h1", 192, 8, padding=3, max_norm=1.9365, **slow),
        Pool(maximum, 4, 2),
        Drop(0.5),
        Conv("h2", 192, 5, padding=3, max_norm=1.9365, **slow),
        Pool(maximum, 2, 2),
        Drop(0.5),
        Dense("h3", 500, pieces=5, max_norm=1.9, start=_start, bias_lr=1.0),
        Drop(0.5),
        Dense("y", classes, acts=False, max_norm=1.9365, start=_start, bias_lr=1.0),
    )
    return Plan(3, 32, classes, layers)


def _mnist() -> Plan:
    full = {"start": _start, "bias_lr": 1.0}
    layers = (
        Drop(0.2),
        Conv("h0", 48, 8, pieces=2, max_norm=0.9, **full),
        Pool(maximum, 4, 2),
        Drop(0.5),
        Conv("h1", 48, 8, padding=3, pieces=2, max_norm=1.9365, **full),
        Pool(maximum, 4, 2),
        Drop(0.5),
        Conv("h2", 24, 5, padding=3, pieces=4, max_norm=1.9365, **full),
        Pool(maximum, 2, 2),
        Drop(0.5),
        Dense("y", 10, acts=False, max_norm=1.9365, **full),
    )
    return Plan(1, 28, 10, layers)


PLANS = {
    "maxout-cifar10": _cifar(10),
    "maxout-cifar100": _cifar(100),
    "maxout-mnist": _mnist(),
}


def build(plan: Plan, unit: str, *, seed: int = 0, dropout: DropoutStream | None = None) -> Stack:
    """Builds a network of maxout units.

    Args:
        plan: One of `PLANS`, or another one with pieces.
        unit: "maxout" or "probout".
        seed: Feeds the stream for weights.
        dropout: Where dropout and probabilistic maxout draw from; needed for training only.

    Example:
        >>> net = build(PLANS["maxout-mnist"], "maxout")
        >>> sum(p.numel() for p in net.parameters())
        418714
    """
    check_choice("unit", unit, UNITS)
    return stack.build(plan, UNITS[unit], seed=seed, dropout=dropout)


def _maxout(layer: Conv | Dense, site: Site, stream: DropoutStream | None) -> nn.Module:
    return Maxout(layer.pieces)


def _probout(layer: Conv | Dense, site: Site, stream: DropoutStream | None) -> nn.Module:
    return ProbMaxout(layer.pieces, SHARPNESS[layer.name], stream)


UNITS: dict[str, stack.Unit] = {"maxout": _maxout, "probout": _probout}
