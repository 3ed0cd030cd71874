"""The convolutional network of the APL paper (Agostinelli et al., 2014), for any activation.

Its authors use 5 hinges per neuron on CIFAR-10 and 2 on CIFAR-100. Ours are: how the weights start,
since theirs are for inputs of another scale; dropout after each pooling and not before it too;
biases as in NIN, learning twice as fast and undecayed; a constant momentum.
"""

from __future__ import annotations

from .stack import Conv, Dense, Drop, Plan, Pool, average, maximum


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
