"""The functions that SReLU learned, layer by layer, over the inputs that they saw.

Table 3 has their means; a mean hides that channels differ more than layers do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ....ops import reference
from ...records.run_record import Record
from ...report import srelu_curves
from ..blocks import CIFAR
from ..published import TITLES
from ..standing import Standing
from .drawing import COLOURS, INK, SOFT, panels, styled
from .figure4 import longest

COLUMNS = 3
SHOWN = 24  # channels of a layer, evenly spaced
RANGE = (0.01, 0.99)  # quantiles of a layer's inputs between which it is drawn


def draw(standing: Standing) -> Figure:
    """Draws the layers for each data set, of the first seed at the longest length there is."""
    found = recorded(standing)
    if not found:
        raise ValueError(
            "no run with SReLU has a record yet, whose functions could be drawn: "
            "`srelu paper run headline`"
        )
    layers = max(len(record.parameters()) for record in found.values())
    rows = -(-layers // COLUMNS)  # of each data set
    with styled():
        figure, axes = panels(len(found) * rows, COLUMNS, (7.4, 1.8 * rows * len(found)))
        for place, (condition, record) in enumerate(found.items()):
            _layers(axes[place * rows * COLUMNS :], TITLES[condition], record)
        figure.supxlabel("input", fontsize=8)
        figure.supylabel("output", fontsize=8)
    return figure


def recorded(standing: Standing) -> dict[str, Record]:
    """The run that is drawn for each data set, if there is one."""
    cells = {c: standing.cell("nin+srelu", c, longest(standing, c)) for c in CIFAR}
    found = {c: [r for r in cell.rival.finished if r.inputs()] for c, cell in cells.items() if cell}
    return {condition: runs[0] for condition, runs in found.items() if runs}


def _layers(axes: Sequence[Axes], title: str, record: Record) -> None:
    parameters, inputs = record.parameters(), record.inputs()
    assert inputs is not None, f"{record.folder} has parameters but not the inputs"
    for place, name in enumerate(record.in_order(parameters)):
        low, high = np.interp(RANGE, inputs.probabilities, inputs.quantiles[name][-1])
        words = f"{name}, {title}, {record.run.epochs} epochs" if place == 0 else name
        _functions(axes[place], words, parameters[name][-1].double().numpy(), low, high)


def _functions(axes: Axes, title: str, params: np.ndarray, low: float, high: float) -> None:
    """Some channels of a layer, whose parameters are (4, C), and the mean over all of them."""
    channels = params.shape[1]
    some = np.linspace(0, channels - 1, min(SHOWN, channels)).round().astype(int)
    bends = np.clip(params[[0, 2]], low, high)  # outside of the view nothing is drawn
    x, _ = srelu_curves.knots(np.stack([bends[0], params[1], bends[1], params[3]]), low, high)
    y = _values(x, params)
    axes.axhline(0, color=SOFT, linewidth=0.5)
    axes.axvline(0, color=SOFT, linewidth=0.5)
    axes.plot(x[:, some], y[:, some], color=COLOURS[0], linewidth=0.5, alpha=0.45)
    grid = np.linspace(low, high, 81)
    mean = _values(np.repeat(grid[:, None], channels, axis=1), params).mean(1)
    axes.plot(grid, mean, color=INK, linewidth=1.3)
    axes.set_title(title, fontsize=8.5)
    axes.tick_params(labelsize=7.5, length=2, pad=1.5)


def _values(x: np.ndarray, params: np.ndarray) -> np.ndarray:
    """SReLU of x (N, C)."""
    return reference.srelu(torch.from_numpy(x), *torch.from_numpy(params), dim=1).numpy()
