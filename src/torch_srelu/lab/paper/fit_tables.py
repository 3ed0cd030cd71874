"""How well the networks fit their training data, and what they look like inside.

Whether an error is one of over- or of underfitting, and whether weights and inputs have the size
that the paper's had: where a result differs from the paper's, the first things to look at.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..analysis.comparison_tables import TextTable, format_number
from ..analysis.learned_parameters import input_magnitudes, last_means, learned_layers
from ..config.recipes import LENGTHS
from ..training.evaluation import IMAGES
from .difference_tables import NAMES
from .learned_tables import adaptation_tables
from .pair_tables import changed_entries
from .published import CIFAR, LEARNED, NOTES, TITLES
from .results import Entry, PaperResults

FITTED = ("train_loss", "train_error", "test_loss")  # of the results


def make_tables(results: PaperResults) -> list[TextTable]:
    """The tables for each data set and length that has records, and when t_r was set."""
    made = []
    for length in LENGTHS:
        for condition in CIFAR:
            found = {NAMES[n]: results.entry(f"nin+{n}", condition, length) for n in NAMES}
            entries = {name: entry for name, entry in found.items() if entry and entry.finished}
            if entries:
                title = f"{TITLES[condition]}, {LENGTHS[length][condition]} epochs"
                made += [_fitted(title, entries), _inputs(title, condition, entries)]
                kept = {n: [r.weights() for r in e.finished] for n, e in entries.items()}
                means = {name: last_means(entries[name], runs) for name, runs in kept.items()}
                weights = {name: values for name, values in means.items() if values}
                if weights:
                    title = f"Root mean square of weights: {title}"
                    made.append(_by_layer(title, entries, weights, weights, 4, NOTES["weights"]))
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
            np.mean([result[what] for result in results]) for what in FITTED
        )
        fit = [f"{train_loss:.3f}", f"{100 * train_error:.2f}", f"{test_loss:.3f}"]
        errors = [entry.mean_error, entry.averaged_error]
        rows.append([name, *fit, *errors, str(len(results))])
    headers = ["", "training loss", "training error", "test loss", "test error", "ema", "n"]
    return TextTable(f"How well they fit: {title}", headers, rows, NOTES["fit"])


def _inputs(title: str, condition: str, entries: Mapping[str, Entry]) -> TextTable:
    means = {name: input_magnitudes(entry) for name, entry in entries.items()}
    learned = learned_layers(entries["SReLU"]) if "SReLU" in entries else {}
    ours = {name: layer.mean["t_r"] for name, layer in learned.items()}
    paper = {name: values["t_r"] for name, values in LEARNED[condition].items()}
    columns = means | {"t_r": ours, "t_r paper": paper}
    title = f"Mean magnitude of inputs: {title}"
    note = NOTES["inputs"].format(images=IMAGES)
    return _by_layer(title, entries, means, columns, 2, note)


def _by_layer(
    title: str,
    entries: Mapping[str, Entry],
    means: Mapping[str, Mapping[str, float]],
    columns: Mapping[str, Mapping[str, float]],
    digits: int,
    note: str,
) -> TextTable:
    """Columns of values, with a line for each layer that any of the ``means`` has."""
    record = next(iter(entries.values())).records[0]
    layers = record.in_order({layer for values in means.values() for layer in values})
    rows = [
        [layer, *(format_number(values.get(layer), f".{digits}f") for values in columns.values())]
        for layer in layers
    ]
    return TextTable(title, ["layer", *columns], rows, note)
