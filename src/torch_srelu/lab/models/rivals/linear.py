"""The simplest rival: one dense layer on the pixels, which every network must beat."""

from __future__ import annotations

from ..layers import DenseSpec
from ..sequential import SequentialSpec

NETWORKS = {
    f"linear-{data}": SequentialSpec(
        channels, size, classes, (DenseSpec("y", classes, acts=False),)
    )
    for data, channels, size, classes in (
        ("cifar10", 3, 32, 10),
        ("cifar100", 3, 32, 100),
        ("mnist", 1, 28, 10),
    )
}
