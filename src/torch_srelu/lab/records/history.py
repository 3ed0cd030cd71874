"""The history of a run: metrics, and statistics of the network's layers, for every epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

# Of the quantiles that describe the inputs of an activation: both ends, dense in the tails.
PROBABILITIES = (
    0.0, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55,
    0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 1.0,
)  # fmt: skip


class Metrics(NamedTuple):
    """One epoch of training; errors are shares of the images, in [0, 1].

    ``phase`` is "frozen" before an adaptive activation is set, "thawed" after, else "plain".
    """

    epoch: int
    lr: float
    train_loss: float
    train_error: float
    grad_norm: float
    seconds: float
    val_error: float | None
    phase: str


class InputStatistics(NamedTuple):
    """Statistics of each activation's inputs by epoch, on a fixed part of the training data.

    Shapes: ``probabilities`` (Q,); per layer ``quantiles`` (epochs, Q) and ``magnitude`` (epochs,),
    the mean absolute value.
    """

    probabilities: Tensor
    quantiles: dict[str, Tensor]
    magnitude: dict[str, Tensor]


@dataclass
class History:
    """Everything per epoch so far; it is saved in the checkpoint. Each series is by layer."""

    metrics: list[Metrics] = field(default_factory=list)
    parameters: dict[str, list[Tensor]] = field(default_factory=dict)  # (4, C) an epoch
    quantiles: dict[str, list[Tensor]] = field(default_factory=dict)  # (Q,) an epoch
    magnitude: dict[str, list[Tensor]] = field(default_factory=dict)  # () an epoch
    weights: dict[str, list[Tensor]] = field(default_factory=dict)  # () an epoch

    def add(self, metrics: Metrics, *tensors: Mapping[str, Tensor]) -> None:
        """Appends one epoch: its metrics, and a mapping from layers for each series in order."""
        self.metrics.append(metrics)
        for name, by_layer in zip(_SERIES, tensors, strict=True):
            for layer, value in by_layer.items():
                getattr(self, name).setdefault(layer, []).append(value)

    def series(self, name: str) -> dict[str, Tensor]:
        """Per layer, the values of all epochs of the series ``name``: (epochs, ...)."""
        return {layer: torch.stack(values) for layer, values in getattr(self, name).items()}

    def input_tensors(self) -> dict[str, Tensor]:
        """Quantiles and magnitudes as named tensors; `input_statistics` reads them."""
        tensors = {"probabilities": torch.tensor(PROBABILITIES, dtype=torch.float64)}
        for kind in ("quantiles", "magnitude"):
            tensors |= {f"{layer}/{kind}": t for layer, t in self.series(kind).items()}
        return tensors

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and tensors, for a checkpoint."""
        series = {name: self.series(name) for name in _SERIES}
        return {"metrics": [tuple(m) for m in self.metrics], **series}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """The history that `state_dict` described."""
        series = {
            name: {layer: list(t.unbind(0)) for layer, t in state[name].items()} for name in _SERIES
        }
        return cls([Metrics(*m) for m in state["metrics"]], **series)


_SERIES = tuple(spec.name for spec in fields(History))[1:]


def input_statistics(tensors: Mapping[str, Tensor]) -> InputStatistics:
    """`InputStatistics` from the named tensors that `History.input_tensors` made."""
    quantiles, magnitude = (
        {name.removesuffix(end): t for name, t in tensors.items() if name.endswith(end)}
        for end in ("/quantiles", "/magnitude")
    )
    return InputStatistics(tensors["probabilities"], quantiles, magnitude)
