"""The convolutional network of the APL paper (Agostinelli et al., 2014), for any activation.

Its authors use 5 hinges per neuron on CIFAR-10 and 2 on CIFAR-100. Ours are: how the weights start,
since theirs are for inputs of another scale; dropout after each pooling and not before it too;
biases as in NIN, learning twice as fast and undecayed; a constant momentum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..seeds import DropoutStream
from . import stack
from .stack import Conv, Dense, Drop, Plan, Pool, Stack, average, maximum

HINGES = {10: 5, 100: 2}  # by the number of classes


def _plan(classes: int) -> Plan:
    layers = (
        Conv("conv1", 96, 5, padding=2),
        Pool(maximum, 3, 2),
        Drop(0.25),
        Conv("conv2", 128, 5, padding=2),
        Pool(average, 3, 2),
        Drop(0.25),
        Conv("conv3", 256, 5, padding=2),
        Pool(average, 3, 2),
        Drop(0.5),
        Dense("ip1", 2048),
        Drop(0.5),
        Dense("ip2", 2048),
        Drop(0.5),
        Dense("ip3", classes, acts=False),
    )
    return Plan(3, 32, classes, layers)


PLANS = {"cnn-cifar10": _plan(10), "cnn-cifar100": _plan(100)}


def build(
    plan: Plan,
    act: str = "apl",
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    dropout: DropoutStream | None = None,
) -> Stack:
    """Builds the network; with APL as its authors have it if no options are given.

    Args:
        plan: One of `PLANS`.
        act: A registered activation.
        options: Options of the activation.
        seed: Feeds the streams for weights and for activation parameters.
        dropout: Where dropout draws from; needed for training only.

    Example:
        >>> relu, apl = (build(PLANS["cnn-cifar10"], act) for act in ("relu", "apl"))
        >>> count = [sum(p.numel() for p in net.parameters()) for net in (relu, apl)]
        >>> count[1] - count[0] == 2 * 5 * (96 * 32**2 + 128 * 16**2 + 256 * 8**2 + 2 * 2048)
        True
    """
    if act == "apl" and not options:
        options = {"hinges": HINGES[plan.classes], "per": "neuron"}
    return stack.build(plan, stack.by_name(act, options), seed=seed, dropout=dropout)
