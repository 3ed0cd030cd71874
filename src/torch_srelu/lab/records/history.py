"""What a run leaves behind epoch by epoch: metrics, and what was seen inside the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Where the distribution of an activation's inputs is described: both ends, dense in the tails.
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


class Inputs(NamedTuple):
    """The inputs of each activation over the epochs, measured on a fixed part of the training data.

    Shapes: ``probabilities`` (Q,); per layer ``quantiles`` (epochs, Q) and ``magnitude`` (epochs,),
    the mean absolute value.
    """

    probabilities: Tensor
    quantiles: dict[str, Tensor]
    magnitude: dict[str, Tensor]


@dataclass
class History:
    """Everything per epoch so far; travels in the checkpoint: no epoch is lost or written twice."""

    metrics: list[Metrics] = field(default_factory=list)
    parameters: dict[str, list[Tensor]] = field(default_factory=dict)  # layer: (4, C) an epoch
    quantiles: dict[str, list[Tensor]] = field(default_factory=dict)  # layer: (Q,) an epoch
    magnitude: dict[str, list[Tensor]] = field(default_factory=dict)  # layer: () an epoch
    weights: dict[str, list[Tensor]] = field(default_factory=dict)  # layer: () an epoch

    def add(
        self,
        metrics: Metrics,
        parameters: Mapping[str, Tensor],
        quantiles: Mapping[str, Tensor],
        magnitude: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
    ) -> None:
        """Appends one epoch."""
        self.metrics.append(metrics)
        for series, new in (
            (self.parameters, parameters),
            (self.quantiles, quantiles),
            (self.magnitude, magnitude),
            (self.weights, weights),
        ):
            for layer, value in new.items():
                series.setdefault(layer, []).append(value)

    def parameter_tensors(self) -> dict[str, Tensor]:
        """Per layer, (epochs, 4, C): t_r, a_r, t_l, a_l after each epoch."""
        return _stack(self.parameters)

    def input_tensors(self) -> dict[str, Tensor]:
        """Quantiles and magnitudes as named tensors; `inputs_from` reads them."""
        tensors = {"probabilities": torch.tensor(PROBABILITIES, dtype=torch.float64)}
        tensors |= {f"{layer}/quantiles": t for layer, t in _stack(self.quantiles).items()}
        tensors |= {f"{layer}/magnitude": t for layer, t in _stack(self.magnitude).items()}
        return tensors

    def weight_tensors(self) -> dict[str, Tensor]:
        """Per layer, (epochs,): the root mean square of its weights after each epoch."""
        return _stack(self.weights)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and tensors, for a checkpoint."""
        return {
            "metrics": [tuple(m) for m in self.metrics],
            "parameters": _stack(self.parameters),
            "quantiles": _stack(self.quantiles),
            "magnitude": _stack(self.magnitude),
            "weights": _stack(self.weights),
        }

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> History:
        """The history that `state_dict` described."""
        series = {
            name: {layer: list(t.unbind(0)) for layer, t in state[name].items()}
            for name in ("parameters", "quantiles", "magnitude", "weights")
        }
        return cls(metrics=[Metrics(*m) for m in state["metrics"]], **series)


def inputs_from(tensors: Mapping[str, Tensor]) -> Inputs:
    """`Inputs` from the named tensors that `History.input_tensors` made."""
    by_kind: dict[str, dict[str, Tensor]] = {"quantiles": {}, "magnitude": {}}
    for name, tensor in tensors.items():
        layer, _, kind = name.rpartition("/")
        if kind in by_kind:
            by_kind[kind][layer] = tensor
    return Inputs(tensors["probabilities"], by_kind["quantiles"], by_kind["magnitude"])


def _stack(series: Mapping[str, list[Tensor]]) -> dict[str, Tensor]:
    return {layer: torch.stack(values) for layer, values in series.items()}
