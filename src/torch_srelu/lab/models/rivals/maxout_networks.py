"""The convolutional networks of the maxout paper (Goodfellow et al., 2013).

Probabilistic maxout has the same. Ours are: that dropout scales what it keeps, at the input too; a
constant momentum; and that probabilistic maxout is dropped out after pooling, as maxout is, where
its authors draw "nothing" as one more outcome of each unit.
"""

from __future__ import annotations

from ..layers import ConvSpec, DenseSpec, uniform
from ..sequential import DropoutSpec, PoolSpec, SequentialSpec, max_pool

_initializer = uniform(0.005)


def _cifar(classes: int) -> SequentialSpec:
    slow = {"initializer": _initializer, "pieces": 2, "weight_lr": 0.05, "bias_lr": 0.05}
    layers = (
        DropoutSpec(0.2),
        ConvSpec("h0", 96, 8, padding=4, max_norm=0.9, **slow),
        PoolSpec(max_pool, 4),
        DropoutSpec(0.5),
        ConvSpec("h1", 192, 8, padding=3, max_norm=1.9365, **slow),
        PoolSpec(max_pool, 4),
        DropoutSpec(0.5),
        ConvSpec("h2", 192, 5, padding=3, max_norm=1.9365, **slow),
        PoolSpec(max_pool, 2),
        DropoutSpec(0.5),
        DenseSpec("h3", 500, pieces=5, max_norm=1.9, initializer=_initializer, bias_lr=1.0),
        DropoutSpec(0.5),
        DenseSpec("y", classes, acts=False, max_norm=1.9365, initializer=_initializer, bias_lr=1.0),
    )
    return SequentialSpec(3, 32, classes, layers)


def _mnist() -> SequentialSpec:
    # Biases of maps, which collect the gradients of all positions, at the factor for CIFAR: ours.
    full = {"initializer": _initializer, "bias_lr": 0.05}
    layers = (
        DropoutSpec(0.2),
        ConvSpec("h0", 48, 8, pieces=2, max_norm=0.9, **full),
        PoolSpec(max_pool, 4),
        DropoutSpec(0.5),
        ConvSpec("h1", 48, 8, padding=3, pieces=2, max_norm=1.9365, **full),
        PoolSpec(max_pool, 4),
        DropoutSpec(0.5),
        ConvSpec("h2", 24, 5, padding=3, pieces=4, max_norm=1.9365, **full),
        PoolSpec(max_pool, 2),
        DropoutSpec(0.5),
        DenseSpec("y", 10, acts=False, max_norm=1.9365, initializer=_initializer, bias_lr=1.0),
    )
    return SequentialSpec(1, 28, 10, layers)


NETWORKS = {
    "maxout-cifar10": _cifar(10),
    "maxout-cifar100": _cifar(100),
    "maxout-mnist": _mnist(),
}
