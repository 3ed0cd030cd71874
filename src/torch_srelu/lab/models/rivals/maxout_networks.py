"""The convolutional networks of the maxout paper (Goodfellow et al., 2013).

Probabilistic maxout has the same. Ours are: that dropout scales what it keeps, at the input too; a
constant momentum; and that probabilistic maxout is dropped out after pooling, as maxout is, where
its authors draw "nothing" as one more outcome of each unit.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..activation_registry import Activation
from ..layers import uniform
from .stack import Conv, Dense, Drop, Plan, Pool, maximum


@dataclass(frozen=True)
class MaxoutPlan(Plan):
    """A network of units with several pieces.

    Example:
        >>> sum(p.numel() for p in PLANS["maxout-mnist"].build("maxout").parameters())
        418714
    """

    def refusal(self, act: Activation) -> str | None:
        if act.joins:
            return None
        return "its units have several pieces, which maxout or probout join"


_start = uniform(0.005)


def _cifar(classes: int) -> MaxoutPlan:
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
    return MaxoutPlan(3, 32, classes, layers)


def _mnist() -> MaxoutPlan:
    # Biases of maps, which collect the gradients of all positions, at the factor for CIFAR: ours.
    full = {"start": _start, "bias_lr": 0.05}
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
        Dense("y", 10, acts=False, max_norm=1.9365, start=_start, bias_lr=1.0),
    )
    return MaxoutPlan(1, 28, 10, layers)


PLANS = {
    "maxout-cifar10": _cifar(10),
    "maxout-cifar100": _cifar(100),
    "maxout-mnist": _mnist(),
}
