"""How well the networks fit their training data, and what they look like inside.

Whether an error is one of over- or of underfitting, and whether weights and inputs have the size
that the paper's had: where a result differs from the paper's, the first things to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...module import NAMES as PARAMETERS
from ..analysis.comparison_tables import TextTable
from ..analysis.learned_parameters import LEARNED_NAMES, learned_layers
from ..config.recipes import LENGTHS
from ..training.inspection import IMAGES
from .difference_tables import NAMES
from .learned_tables import adaptation_tables
from .pair_tables import changed_entries
from .published import CIFAR, LEARNED, TITLES
from .results import Entry, PaperResults, number

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


def make_tables(results: PaperResults) -> list[TextTable]:
    """The tables for each data set and length that has records, and when t_r was set."""
    made = []
    for length in LENGTHS:
        for condition in CIFAR:
            found = {name: results.entry(f"nin+{name}", condition, length) for name in NAMES}
            entries = {name: entry for name, entry in found.items() if entry and entry.finished}
            if entries:
                title = f"{TITLES[condition]}, {LENGTHS[length][condition]} epochs"
                fitted = {NAMES[name]: entry for name, entry in entries.items()}
                made += [_fitted(title, fitted), _inputs(title, condition, entries)]
                weighed = {name: entry for name, entry in entries.items() if any(_weights(entry))}
                if weighed:
                    made.append(_weighed(title, weighed))
    changed = changed_entries(results)
    if changed:
        made.append(
            _fitted("SReLU with one decision changed, reuse, longer ReLU, CIFAR-10", changed)
        )
    return [*made, *adaptation_tables(results)]


def _fitted(title: str, entries: Mapping[str, Entry]) -> TextTable:
    rows = []
    for name, entry in entries.items():
        results = [record.result for record in entry.finished if record.result]
        train_loss, train_error, test_loss = (
            float(np.mean([result[what] for result in results])) for what in FITTED
        )
        rows.append(
            [
                name,
                f"{train_loss:.3f}",
                f"{100 * train_error:.2f}",
                f"{test_loss:.3f}",
                entry.mean_error,
                entry.averaged_error,
                str(len(results)),
            ]
        )
    headers = ["", "training loss", "training error", "test loss", "test error", "ema", "n"]
    return TextTable(f"How well they fit: {title}", headers, rows, FITTED_NOTE)


def _inputs(title: str, condition: str, entries: Mapping[str, Entry]) -> TextTable:
    learned = learned_layers(entries["srelu"]) if "srelu" in entries else {}
    own, published = PARAMETERS.index("t_r"), LEARNED_NAMES.index("t_r")
    values = {name: _magnitudes(entry) for name, entry in entries.items()}
    rows = [
        [
            *line,
            number(learned[line[0]].mean[own] if line[0] in learned else None),
            number(LEARNED[condition][line[0]][published]),
        ]
        for line in _by_layer(entries, values, 2)
    ]
    headers = ["layer", *(NAMES[name] for name in entries), "t_r", "t_r paper"]
    return TextTable(f"Mean magnitude of inputs: {title}", headers, rows, INPUTS_NOTE)


def _weighed(title: str, entries: Mapping[str, Entry]) -> TextTable:
    rows = _by_layer(entries, {name: _weights(entry) for name, entry in entries.items()}, 4)
    headers = ["layer", *(NAMES[name] for name in entries)]
    return TextTable(f"Root mean square of weights: {title}", headers, rows, WEIGHTS_NOTE)


def _by_layer(
    entries: Mapping[str, Entry], values: Mapping[str, list[Mapping[str, float]]], digits: int
) -> list[list[str]]:
    """A line for each layer: its name and, for each entry, the mean of its runs' values."""
    record = next(iter(entries.values())).records[0]
    means = {name: _mean(runs) for name, runs in values.items()}
    names = record.in_order({layer for mean in means.values() for layer in mean})
    return [
        [layer, *(number(mean.get(layer), digits) for mean in means.values())] for layer in names
    ]


def _magnitudes(entry: Entry) -> list[Mapping[str, float]]:
    kept = [record.inputs() for record in entry.finished]
    return [{n: m[-1].item() for n, m in inputs.magnitude.items()} for inputs in kept if inputs]


def _weights(entry: Entry) -> list[Mapping[str, float]]:
    kept = [record.weights() for record in entry.finished]
    return [{n: w[-1].item() for n, w in weights.items()} for weights in kept if weights]


def _mean(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each layer over the runs; empty without any."""
    return {layer: float(np.mean([run[layer] for run in runs])) for layer in (runs or [{}])[0]}
