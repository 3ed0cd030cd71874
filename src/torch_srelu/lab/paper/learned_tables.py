"""What SReLU learned, layer by layer, beside what it learned in the paper, and when t_r was set.

t_r is set to a percentile of a layer's inputs when the freeze ends, and inputs grow with training:
so the paper's t_r tell something about the length of its freeze, which it does not state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..._text import counted
from ..analysis.comparison_tables import NOTHING, TextTable
from ..analysis.learned_parameters import LEARNED_NAMES, LearnedLayer, learned_layers
from ..config.recipes import LENGTHS
from ..config.run import Run
from .published import CIFAR, CIFAR10, LEARNED, NOTES, TITLES, read_csv
from .results import Entry, PaperResults, plain_entry
from .row_recipes import ROWS


def make_tables(results: PaperResults) -> list[TextTable]:
    """Table 3: mean learned parameters by layer beside the paper's, thresholds and slopes."""
    return [
        _table3(condition, length, names, entry, results)
        for condition, length, entry in _entries(results)
        for names in (LEARNED_NAMES[:2], LEARNED_NAMES[2:])
    ]


def _entries(results: PaperResults) -> Iterator[tuple[str, str, Entry | None]]:
    """Each condition at each length that has records, and without any at the short one."""
    for condition in LEARNED:
        for length in LENGTHS:
            entry = results.entry("nin+srelu", condition, length)
            if entry is not None or length == "short":
                yield condition, length, entry


def _table3(
    condition: str, length: str, names: Sequence[str], entry: Entry | None, results: PaperResults
) -> TextTable:
    ours = learned_layers(entry) if entry else {}
    headers = ["layer", *(h for name in names for h in (f"{name} paper", "ours", "spread"))]
    rows = []
    for layer, values in LEARNED[condition].items():
        line, learned = [layer], ours.get(layer)
        for name in names:
            line.append(f"{values[name]:.2f}")
            if learned:
                line += [f"{learned.mean[name]:.2f}", f"{learned.std[name]:.2f}"]
            else:
                line += ["not run", NOTHING]
        rows.append(line)
    epochs = LENGTHS[length][condition]
    title = f"Table 3: {TITLES[condition]}, {' and '.join(names)}, ours after {epochs} epochs"
    note = "Means over the channels of a layer"
    if entry is None:
        note += f". Not run: {results.how_to_run('nin+srelu', condition)}."
    else:
        seeds = counted(len(entry.finished), "seed")
        note += f" and n = {seeds}; spread: standard deviation over these."
        note += f"\n{_shapes(list(ours.values()))}" if "a_r" in names else ""
    return TextTable(title, headers, rows, note)


def _shapes(learned: Sequence[LearnedLayer]) -> str:
    """How many channels of all layers have which slopes, in words."""

    channels = [layer.channels for layer in learned]
    shares = {
        name: 100 * np.average([getattr(layer, name) for layer in learned], weights=channels)
        for name in ("slower", "rising", "s_shaped")
    }
    return NOTES["shapes"].format(**shares)


def plain_values(results: PaperResults) -> Iterator[dict[str, Any]]:
    """One plain value for each parameter of each layer, and each length that has records."""
    for condition, length, entry in _entries(results):
        ours = learned_layers(entry) if entry else {}
        for layer, values in LEARNED[condition].items():
            learned = ours.get(layer)
            for name, value in values.items():
                if learned:
                    note = f"std over seeds; over channels {learned.std[name]:.4g}"
                else:
                    note = f"not run: {results.how_to_run('nin+srelu', condition)}"
                seeds, part = learned and learned.seeds[name], f":{layer}:{name}"
                yield plain_entry("nin+srelu", condition, length, value, seeds, note, part)


def adaptation_tables(results: PaperResults) -> list[TextTable]:
    """When t_r was set and what it became, for each data set of which two moments are there."""
    made = []
    for condition in CIFAR:
        lines = (line for line in read_csv("adapted.csv") if line["condition"] == condition)
        found = [results.entry_of(line["experiment"], line["row"]) for line in lines]
        ours = {_moment(e.finished[0].run): e for e in found if e and e.finished}
        if len(ours) > 1:
            made.append(_adaptation_table(condition, ours))
    return made


def _adaptation_table(condition: str, ours: dict[str, Entry]) -> TextTable:
    learned = [learned_layers(entry) for entry in ours.values()]
    rows = [
        [
            layer,
            *(f"{o[layer].mean['t_r']:.2f}" if layer in o else NOTHING for o in learned),
            f"{values['t_r']:.2f}",
        ]
        for layer, values in LEARNED[condition].items()
    ]
    rows.append(["n", *(str(len(entry.finished)) for entry in ours.values()), NOTHING])
    note = NOTES["adapted"]
    if condition == CIFAR10:
        note += NOTES["reused"].format(epochs=ROWS["reuse:before"](CIFAR10, 1).epochs)
    title = f"When t_r was set: {TITLES[condition]}"
    return TextTable(title, ["layer", *ours, "paper"], rows, note)


def _moment(run: Run) -> str:
    """After how many epochs its t_r was set."""
    when = "reused" if run.start else f"{run.freeze} of {run.epochs}"
    return f"{when}, kept" if "t_r" in run.fixed else when
