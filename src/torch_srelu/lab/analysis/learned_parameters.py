"""Learned parameters of SReLU by layer, over the runs of a rival: the paper's Table 3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ...module import NAMES
from . import sample_statistics
from .comparison import Rival
from .sample_statistics import SampleSummary

LEARNED_NAMES = ("t_r", "t_l", "a_r", "a_l")  # in the order of the paper's table, and of ours


class LearnedLayer(NamedTuple):
    """Learned parameters of one layer at the last epoch.

    Attributes:
        name: The layer.
        channels: How many sets of parameters it has.
        mean: Of each parameter by name, over all channels of all finished runs.
        std: Standard deviation over the same.
        crossed: The share of channels with t_l > t_r.
        slower: The share with a_r < 1.
        rising: The share with a_l < 0.
        s_shaped: The share whose slopes are both in [0, 1).
        seeds: Of each parameter, how the layer's mean varies from run to run.
    """

    name: str
    channels: int
    mean: dict[str, float]
    std: dict[str, float]
    crossed: float
    slower: float
    rising: float
    s_shaped: float
    seeds: dict[str, SampleSummary]


def learned_layers(rival: Rival) -> dict[str, LearnedLayer]:
    """The layers of a rival in the order of its network; empty if it has no SReLU units."""
    runs = [r.parameters() for r in rival.finished]
    if not any(runs):
        return {}
    return {
        name: _layer(name, np.stack([run[name][-1].double().numpy() for run in runs]))
        for name in rival.records[0].in_order(runs[0])
    }


def input_magnitudes(rival: Rival) -> dict[str, float]:
    """Mean magnitude of each activation's inputs, as `last_means`."""
    return last_means(rival, (i.magnitude for r in rival.finished if (i := r.inputs())))


def last_means(rival: Rival, runs: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """The mean over a rival's runs of each layer's value at the last epoch, in network order.

    Runs without any values are left out, and layers that not all of the others have.
    """
    last = [{name: values[-1].item() for name, values in run.items()} for run in runs if run]
    names = [name for name in last[0] if all(name in run for run in last)] if last else []
    order = rival.records[0].in_order(names)
    return {name: float(np.mean([run[name] for run in last])) for name in order}


def _layer(name: str, last: np.ndarray) -> LearnedLayer:
    """From the parameters of all runs, (n, 4, C)."""
    t_r, a_r, t_l, a_l = last.swapaxes(0, 1)  # (n, C) each
    flatter = (a_r >= 0) & (a_r < 1) & (a_l >= 0) & (a_l < 1)
    return LearnedLayer(
        name,
        channels=last.shape[-1],
        mean=dict(zip(NAMES, last.mean((0, 2)).tolist(), strict=True)),
        std=dict(zip(NAMES, last.std((0, 2)).tolist(), strict=True)),
        crossed=float((t_l > t_r).mean()),
        slower=float((a_r < 1).mean()),
        rising=float((a_l < 0).mean()),
        s_shaped=float(flatter.mean()),
        seeds=dict(zip(NAMES, map(sample_statistics.summarise, last.mean(2).T), strict=True)),
    )
