"""The convolutional network of the APL paper (Agostinelli et al., 2014), for any activation.

Its authors use 5 hinges per neuron on CIFAR-10 and 2 on CIFAR-100. Ours are: the deviation of the
first layer's weights (`FIRST`), since their inputs have another scale; dropout after each pooling
and not before it too; biases as in NIN, learning twice as fast and undecayed; a constant momentum.
"""

from __future__ import annotations

from ..layers import normal
from .stack import Conv, Dense, Drop, Plan, Pool, average, maximum

# Deviations of the weights at the start: of the first layer (ours), and of the others (published).
# At 0.01 the first makes of whitened images, of deviation 0.5, far less than the units' own
# offsets, and what differs between images fades to 1e-4 in the logits; at 0.1 it is a hundred times
# that. He's weights, with dropout and this rate, drive most ReLUs of conv2 to zero in twenty steps.
FIRST, OTHERS = 0.1, 0.01


def cnn(classes: int) -> Plan:
    """Three convolutions and three dense layers for CIFAR."""
    start = normal(OTHERS)
    layers = (
        Conv("conv1", 96, 5, padding=2, start=normal(FIRST)),
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


PLANS = {f"cnn-cifar{classes}": cnn(classes) for classes in (10, 100)}
