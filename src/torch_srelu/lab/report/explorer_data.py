"""Data of the report's explorer: the functions that SReLU units learned, and their inputs."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..records.history import InputStatistics
from ..records.run_record import Record
from . import srelu_curves

BUDGET_BYTES = 4_000_000  # of packed curves in a page; long runs show fewer of their epochs
VIEW = (0.005, 0.995)  # the share of the inputs that the drawn range covers


def explorer(runs: Iterable[tuple[str, Record]]) -> dict[str, Any] | None:
    """Curves and inputs of every layer, channel and epoch, ready for the page's script.

    Args:
        runs: Names to show, with their records; those without SReLU units are passed over.

    Returns:
        None if no run has SReLU units.
    """
    shown = [(name, r, inputs) for name, r in runs if r.parameters() and (inputs := r.inputs())]
    if not shown:
        return None
    # Of every epoch: 8 numbers of 4 bytes for each channel and for the mean of each layer.
    channels = [layer.shape[-1] for _, r, _ in shown for layer in r.parameters().values()]
    most = max(2, BUDGET_BYTES // sum(32 * (count + 1) for count in channels))
    return {
        "probabilities": shown[0][2].probabilities.tolist(),
        "runs": [_packed_run(name, record, inputs, most) for name, record, inputs in shown],
    }


def _packed_run(name: str, record: Record, inputs: InputStatistics, most: int) -> dict[str, Any]:
    parameters = record.parameters()
    recorded = len(next(iter(parameters.values())))  # in an archive, the last epoch alone
    epochs = [m.epoch for m in record.metrics][-recorded:]
    shown = _spread(len(epochs), most)
    layers = []
    for layer in record.in_order(parameters.keys() & inputs.quantiles):  # heads only train
        values = parameters[layer][shown].double().numpy()  # (E, 4, C)
        quantiles = inputs.quantiles[layer][shown].double().numpy()  # (E, Q)
        layers.append(
            {
                "name": layer,
                "channels": values.shape[-1],
                **_packed_curves(values, quantiles, inputs.probabilities.numpy()),
                "quantiles": [[float(f"{q:.4g}") for q in row] for row in quantiles.tolist()],
            }
        )
    return {"name": name, "epochs": [epochs[i] for i in shown], "layers": layers}


def _packed_curves(
    values: np.ndarray, quantiles: np.ndarray, probabilities: np.ndarray
) -> dict[str, Any]:
    """The drawn range of a layer and, packed as float32 (E, 8, C + 1), parameters and knots.

    The last of the C + 1 curves is that of the layer's mean parameters.
    """
    first, last = (int(np.abs(probabilities - p).argmin()) for p in VIEW)
    low, high = float(quantiles[:, first].min()), float(quantiles[:, last].max())
    margin = 0.05 * (high - low) or 1.0
    low, high = low - margin, high + margin
    values = np.concatenate([values, values.mean(-1, keepdims=True)], axis=-1)  # (E, 4, C + 1)
    epochs, _, count = values.shape
    x, y = srelu_curves.knots(values.transpose(1, 0, 2).reshape(4, -1), low, high)  # (4, E (C + 1))
    bottom, top = np.percentile(y[(x >= low) & (x <= high)], [0.5, 99.5])
    margin = 0.05 * (top - bottom) or 1.0
    knots = y.reshape(4, epochs, count).transpose(1, 0, 2)
    packed = np.concatenate([values, knots], axis=1).astype("<f4")
    return {
        "low": low,
        "high": high,
        "bottom": float(bottom - margin),
        "top": float(top + margin),
        "packed": base64.b64encode(packed.tobytes()).decode(),
    }


def _spread(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count`` epochs, evenly spread, the first and the last among them."""
    shown = min(count, most)
    return sorted({round(i * (count - 1) / max(1, shown - 1)) for i in range(shown)})
