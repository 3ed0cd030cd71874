"""The convolutional network of the APL paper (Agostinelli et al., 2014), for any activation.

Its authors use 5 hinges per neuron on CIFAR-10 and 2 on CIFAR-100. Ours are: the deviation of the
first layer's weights (`FIRST`), since their inputs have another scale; dropout after each pooling
and not before it too; biases as in NIN, learning twice as fast and undecayed; a constant momentum.
"""

from __future__ import annotations

from ..layers import ConvSpec, DenseSpec, normal
from ..sequential import DropoutSpec, PoolSpec, SequentialSpec, average_pool, max_pool

# Deviations of the weights at the start: of the first layer (ours), and of the others (published).
# At 0.01 the first makes of whitened images, of deviation 0.5, far less than the units' own
# offsets, and what differs between images fades to 1e-4 in the logits; at 0.1 it is a hundred times
# that. He's weights, with dropout and this rate, drive most ReLUs of conv2 to zero in twenty steps.
FIRST, OTHERS = 0.1, 0.01


def cnn(classes: int) -> SequentialSpec:
    """Three convolutions and three dense layers for CIFAR."""
    init = normal(OTHERS)
    layers = (
        ConvSpec("conv1", 96, 5, padding=2, initializer=normal(FIRST)),
        PoolSpec(max_pool),
        DropoutSpec(0.25),
        ConvSpec("conv2", 128, 5, padding=2, initializer=init),
        PoolSpec(average_pool),
        DropoutSpec(0.25),
        ConvSpec("conv3", 256, 5, padding=2, initializer=init),
        PoolSpec(average_pool),
        DropoutSpec(0.5),
        DenseSpec("ip1", 2048, initializer=init),
        DropoutSpec(0.5),
        DenseSpec("ip2", 2048, initializer=init),
        DropoutSpec(0.5),
        DenseSpec("ip3", classes, acts=False, initializer=init),
    )
    return SequentialSpec(3, 32, classes, layers)


NETWORKS = {f"cnn-cifar{classes}": cnn(classes) for classes in (10, 100)}
