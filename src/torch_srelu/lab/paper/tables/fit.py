"""How well the networks fit their training data, and what they look like inside.

Whether an error is one of over- or of underfitting, and whether weights and inputs have the size
that the paper's had: where a result differs from the paper's, the first things to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....module import NAMES as PARAMETERS
from ...analysis.comparison import Rival
from ...analysis.comparison_tables import NOTHING, TextTable
from ...analysis.learned_parameters import learned_layers
from ...config.recipes import LENGTHS
from ...training.inspection import IMAGES
from ..blocks import CIFAR
from ..published import LEARNED, LEARNED_NAMES, TITLES
from ..standing import Cell, Standing
from . import ablations, thaw
from .cells import mean_error
from .differences import NAMES

FITTED = ("train_loss", "train_error", "test_loss")  # of the results
FITTED_NOTE = (
    "Means over n seeds. Training loss and error are those of the last epoch while it was trained, "
    "with dropout; test loss and error those of its end, without; ema: error of averaged weights."
)
INPUTS_NOTE = (
    f"At the last epoch, on {IMAGES} training images; means over seeds. t_r of SReLU: means over "
    "the channels of a layer."
)
WEIGHTS_NOTE = (
    "At the last epoch; means over the seeds whose records have it. Who is missing has none: the "
    "first records were made without."
)


def grids(standing: Standing) -> list[TextTable]:
    """The tables for each data set and length that has records, and when t_r was set."""
    made = []
    for length in LENGTHS:
        for condition in CIFAR:
            cells = {name: standing.cell(f"nin+{name}", condition, length) for name in NAMES}
            found = {name: cell for name, cell in cells.items() if cell and cell.rival.finished}
            if found:
                title = f"{TITLES[condition]}, {LENGTHS[length][condition]} epochs"
                fitted = {NAMES[name]: cell.rival for name, cell in found.items()}
                made += [_fitted(title, fitted), _inputs(title, condition, found)]
                weighed = {name: cell for name, cell in found.items() if any(_weights(cell))}
                if weighed:
                    made.append(_weighed(title, weighed))
    changed = ablations.changed(standing)
    if changed:
        made.append(
            _fitted("SReLU with one decision changed, reuse, longer ReLU, CIFAR-10", changed)
        )
    return [*made, *thaw.grids(standing)]


def _fitted(title: str, rivals: Mapping[str, Rival]) -> TextTable:
    rows = []
    for name, rival in rivals.items():
        results = [record.result for record in rival.finished if record.result]
        train_loss, train_error, test_loss = (
            float(np.mean([result[what] for result in results])) for what in FITTED
        )
        averaged = Cell(rival).averaged
        rows.append(
            [
                name,
                f"{train_loss:.3f}",
                f"{100 * train_error:.2f}",
                f"{test_loss:.3f}",
                mean_error(rival),
                f"{averaged.mean:.2f}" if averaged else NOTHING,
                str(len(results)),
            ]
        )
    headers = ["", "training loss", "training error", "test loss", "test error", "ema", "n"]
    return TextTable(f"How well they fit: {title}", headers, rows, FITTED_NOTE)


def _inputs(title: str, condition: str, cells: Mapping[str, Cell]) -> TextTable:
    learned = learned_layers(cells["srelu"].rival) if "srelu" in cells else {}
    own, published = PARAMETERS.index("t_r"), LEARNED_NAMES.index("t_r")
    rows = [
        [
            *line,
            _number(learned[line[0]].mean[own] if line[0] in learned else None),
            _number(LEARNED[condition][line[0]][published]),
        ]
        for line in _by_layer(cells, {name: _magnitudes(cell) for name, cell in cells.items()}, 2)
    ]
    headers = ["layer", *(NAMES[name] for name in cells), "t_r", "t_r paper"]
    return TextTable(f"Mean magnitude of inputs: {title}", headers, rows, INPUTS_NOTE)


def _weighed(title: str, cells: Mapping[str, Cell]) -> TextTable:
    rows = _by_layer(cells, {name: _weights(cell) for name, cell in cells.items()}, 4)
    headers = ["layer", *(NAMES[name] for name in cells)]
    return TextTable(f"Root mean square of weights: {title}", headers, rows, WEIGHTS_NOTE)


def _by_layer(
    cells: Mapping[str, Cell], values: Mapping[str, list[Mapping[str, float]]], digits: int
) -> list[list[str]]:
    """A line for each layer: its name and, for each cell, the mean of its runs' values."""
    record = next(iter(cells.values())).rival.records[0]
    means = {name: _mean(runs) for name, runs in values.items()}
    names = record.in_order({layer for mean in means.values() for layer in mean})
    return [
        [layer, *(_number(means[name].get(layer), digits) for name in cells)] for layer in names
    ]


def _magnitudes(cell: Cell) -> list[Mapping[str, float]]:
    kept = [record.inputs() for record in cell.rival.finished]
    return [{n: m[-1].item() for n, m in inputs.magnitude.items()} for inputs in kept if inputs]


def _weights(cell: Cell) -> list[Mapping[str, float]]:
    kept = [record.weights() for record in cell.rival.finished]
    return [{n: w[-1].item() for n, w in weights.items()} for weights in kept if weights]


def _mean(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each layer over the runs; empty without any."""
    return {layer: float(np.mean([run[layer] for run in runs])) for layer in (runs or [{}])[0]}


def _number(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
