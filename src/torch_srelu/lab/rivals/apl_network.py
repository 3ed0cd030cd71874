"""The convolutional network of the APL paper (Agostinelli et al., 2014), for any activation.

Its authors use 5 hinges per neuron on CIFAR-10 and 2 on CIFAR-100. Ours are: the deviation of the
first layer's weights, since their inputs have another scale; dropout after each pooling and not
before it too; biases as in NIN, learning twice as fast and undecayed; a constant momentum.
"""

from __future__ import annotations

from ..layers import Start, normal
from .stack import Conv, Dense, Drop, Plan, Pool, average, maximum


def cnn(classes: int, start: Start) -> Plan:
    """Three convolutions and three dense layers for CIFAR; ``start`` gives their weights."""
    layers = (
        Conv("conv1", 96, 5, padding=2, start=start),
        Pool(maximum, 3, 2),
        Drop(0.25),
        Conv("conv2", 128, 5, padding=2, start=start),
        Pool(average, 3, 2),
        Drop(0.25),
        Conv("conv3", 256, 5, padding=2, start=start),
        Pool(average, 3, 2),
        Drop(0.5),
        Dense("ip1", 2048, start=start),
        Drop(0.5),
        Dense("ip2", 2048, start=start),
        Drop(0.5),
        Dense("ip3", classes, acts=False, start=start),
    )
    return Plan(3, 32, classes, layers)


PLANS = {f"cnn-cifar{classes}": cnn(classes, normal(0.01)) for classes in (10, 100)}
