"""The simplest rival: one dense layer on the pixels, which every network must beat."""

from __future__ import annotations

from .stack import Dense, Plan

PLANS = {
    f"linear-{data}": Plan(channels, size, classes, (Dense("y", classes, acts=False),))
    for data, channels, size, classes in (
        ("cifar10", 3, 32, 10),
        ("cifar100", 3, 32, 100),
        ("mnist", 1, 28, 10),
    )
}
