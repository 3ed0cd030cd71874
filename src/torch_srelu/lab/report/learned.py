"""What the SReLU units learned: the table of the paper's Table 3, and the explorer's data."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...module import NAMES
from .. import curves
from ..comparison import Rival
from ..history import Inputs
from ..nets import plan
from ..records import Record
from ..run import Run

BUDGET_BYTES = 4_000_000  # of packed curves in a page; long runs show fewer of their epochs
VIEW = (0.005, 0.995)  # the share of the inputs that the drawn range covers


@dataclass(frozen=True)
class LayerTable:
    """Learned parameters of one layer at the last epoch, over all channels of all finished runs.

    ``mean`` and ``std`` follow the order t_r, a_r, t_l, a_l; ``crossed`` is the share of channels
    with t_l > t_r.
    """

    layer: str
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crossed: float


def layer_table(rival: Rival) -> list[LayerTable]:
    """The paper's Table 3 for a rival; empty if it has no SReLU units."""
    runs = [r.parameters() for r in rival.finished]
    if not any(runs):
        return []
    table = []
    for layer in in_order(rival.records[0].run, runs[0]):
        last = np.concatenate([run[layer][-1].double().numpy() for run in runs], axis=1)  # (4, nC)
        t_r, t_l = last[NAMES.index("t_r")], last[NAMES.index("t_l")]
        table.append(
            LayerTable(
                layer,
                channels=runs[0][layer].shape[-1],
                mean=tuple(last.mean(1).tolist()),
                std=tuple(last.std(1).tolist()),
                crossed=float((t_l > t_r).mean()),
            )
        )
    return table


def explorer(runs: Iterable[tuple[str, Record]]) -> dict[str, Any] | None:
    """Curves and inputs of every layer, channel and epoch, ready for the page's script.

    Args:
        runs: Names to show, with their records; those without SReLU units are passed over.

    Returns:
        None if no run has SReLU units.
    """
    kept = [
        (name, r, received)
        for name, r in runs
        if r.parameters() and (received := r.inputs()) is not None
    ]
    if not kept:
        return None
    per_epoch = sum(4 * _width(layer) for _, r, _ in kept for layer in r.parameters().values())
    most = max(2, BUDGET_BYTES // per_epoch)
    return {
        "probabilities": kept[0][2].probabilities.tolist(),
        "runs": [_packed_run(name, record, received, most) for name, record, received in kept],
    }


def in_order(run: Run, layers: Iterable[str]) -> list[str]:
    """Layer names from the input to the output of the run's network; unknown ones last."""
    places = {layer.name: i for i, layer in enumerate(plan(run.net).layers)}
    return sorted(layers, key=lambda name: (places.get(name, len(places)), name))


def _width(parameters: Any) -> int:
    """Numbers an epoch of a layer takes: 8 for each channel and for the layer's mean."""
    return 8 * (parameters.shape[-1] + 1)


def _packed_run(name: str, record: Record, received: Inputs, most: int) -> dict[str, Any]:
    parameters = record.parameters()
    kept = len(next(iter(parameters.values())))  # of an archive, the last epoch alone
    epochs = [m.epoch for m in record.metrics][-kept:]
    shown = _spread(len(epochs), most)
    layers = []
    for layer in in_order(record.run, parameters):
        values = parameters[layer][shown].double().numpy()  # (E, 4, C)
        quantiles = received.quantiles[layer][shown].double().numpy()  # (E, Q)
        layers.append(
            {
                "name": layer,
                "channels": values.shape[-1],
                **_packed_curves(values, quantiles, received.probabilities.numpy()),
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
    x, y = curves.knots(values.transpose(1, 0, 2).reshape(4, -1), low, high)  # (4, E (C + 1))
    seen = y[(x >= low) & (x <= high)]
    bottom, top = np.percentile(seen, [0.5, 99.5])
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
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
