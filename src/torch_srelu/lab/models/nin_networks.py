"""Network in Network (Lin et al., 2013), as published for each data set, with any activation."""

from __future__ import annotations

from typing import Any

from ..util.patience import DEAD_AFTER
from .layers import ConvSpec, he, normal
from .sequential import (
    DropoutSpec,
    GlobalAverage,
    Pooling,
    PoolSpec,
    SequentialSpec,
    average_pool,
    max_pool,
)

Layers = tuple[ConvSpec | PoolSpec | DropoutSpec, ...]


def _conv(name: str, channels: int, kernel: int = 1, std: float | None = None, **more) -> ConvSpec:
    """A convolution that keeps the size; without ``std``, its weights are scaled by fan_in."""
    initializer = he if std is None else normal(std)
    padding = kernel // 2
    return ConvSpec(name, channels, kernel, padding, initializer=initializer, key="conv", **more)


def _pool(name: str, pooling: Pooling, dropout: float = 0.5) -> Layers:
    return PoolSpec(pooling, name=name), DropoutSpec(dropout)


def _nin(channels: int, size: int, classes: int, layers: Layers, **more: Any) -> SequentialSpec:
    whole = (*layers, GlobalAverage)
    return SequentialSpec(channels, size, classes, whole, dead_after=DEAD_AFTER, **more)


def _cifar(
    classes: int,
    last_lr: tuple[float, float],
    first_std: float = 0.05,
    cccp_std: float = 0.05,
    pool2: Pooling = average_pool,
) -> SequentialSpec:
    layers = (
        _conv("conv1", 192, 5, first_std),
        _conv("cccp1", 160, std=cccp_std),
        _conv("cccp2", 96, std=cccp_std),
        *_pool("pool1", max_pool),
        _conv("conv2", 192, 5, std=0.05),
        _conv("cccp3", 192, std=0.05),
        _conv("cccp4", 192, std=0.05),
        *_pool("pool2", pool2),
        _conv("conv3", 192, 3, std=0.05),
        _conv("cccp5", 192, std=0.05),
        _conv("cccp6", classes, std=0.05, weight_lr=last_lr[0], bias_lr=last_lr[1]),
    )
    return _nin(3, 32, classes, layers)


def _mnist(last_std: float | None, last_bias: float) -> SequentialSpec:
    """NIN for MNIST: the layers as published.

    The rest is not, and ours: factors like CIFAR-10's; weights scaled by fan_in, since with 0.05 in
    layers this narrow the signal fades and ReLU dies.
    """
    layers = (
        _conv("conv1", 96, 5),
        _conv("cccp1", 64),
        _conv("cccp2", 48),
        *_pool("pool1", max_pool),
        _conv("conv2", 128, 5),
        _conv("cccp3", 96),
        _conv("cccp4", 48),
        *_pool("pool2", max_pool),
        _conv("conv3", 128, 5),
        _conv("cccp5", 96),
        _conv("cccp6", 10, std=last_std, bias=last_bias, weight_lr=0.1, bias_lr=0.1),
    )
    return _nin(1, 28, 10, layers)


# Factors of the last layer. CIFAR-10's are those of Caffe's model zoo.
_CIFAR10, _CIFAR100 = (0.1, 0.1), (1.0, 2.0)

NETWORKS: dict[str, SequentialSpec] = {
    "nin-cifar10": _cifar(10, _CIFAR10),
    # The authors' cuda-convnet files have one learning rate for all layers, and smaller first
    # weights. With ReLU their start is dead: the image is lost in the last biases' first steps, and
    # a class that they push below zero never comes back. So the weights start as on CIFAR-10, with
    # which ReLU learns.
    "nin-cifar100": _cifar(100, _CIFAR100),
    "nin-published-start-cifar100": _cifar(100, _CIFAR100, first_std=0.001, cccp_std=0.01),
    # As NIN's authors had it, before Caffe: the maximum in the second pool too.
    "nin-max-cifar10": _cifar(10, _CIFAR10, pool2=max_pool),
    "nin-max-cifar100": _cifar(100, _CIFAR100, pool2=max_pool),
    # A class whose map falls below zero for every image gets no gradient, and rarely comes back:
    # with a last layer that starts like the others, ReLU ended without two and three of ten at two
    # of three seeds (block `start`). So all maps start alike, and above zero.
    "nin-mnist": _mnist(last_std=None, last_bias=0.0),
    "nin-lifted-mnist": _mnist(last_std=0.05, last_bias=1.0),
    # Ours, for the embedded digits: seconds on one core; more threads would wait for each other.
    # Its last biases are lifted too.
    "nin-digits": _nin(
        1,
        8,
        10,
        (
            _conv("conv1", 32, 3),
            _conv("cccp1", 24),
            *_pool("pool1", max_pool, dropout=0.2),
            _conv("conv2", 48, 3),
            _conv("cccp2", 32),
            *_pool("pool2", average_pool, dropout=0.2),
            _conv("conv3", 48, 3),
            _conv("cccp3", 10, bias=1.0, weight_lr=0.1, bias_lr=0.1),
        ),
        threads=1,
    ),
}
