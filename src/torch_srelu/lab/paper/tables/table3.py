"""Table 3: what SReLU learned, layer by layer, beside what it learned in the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...._text import counted
from ....module import NAMES
from ...analysis.comparison_tables import NOTHING, TextTable
from ...analysis.learned_parameters import LearnedLayer, learned_layers
from ...config.recipes import LENGTHS
from ..published import LEARNED, LEARNED_NAMES, TITLES
from ..standing import Cell, Standing
from .cells import entry, how_to_run, protocol


def grids(standing: Standing) -> list[TextTable]:
    """Table 3: mean learned parameters by layer beside the paper's, thresholds and slopes."""
    return [
        _grid(condition, length, names, LEARNED[condition], cell, standing)
        for condition, length, cell in _cells(standing)
        for names in (LEARNED_NAMES[:2], LEARNED_NAMES[2:])
    ]


def _cells(standing: Standing) -> Iterator[tuple[str, str, Cell | None]]:
    """Each condition at each length that has records, and without any at the short one."""
    for condition in LEARNED:
        for length in LENGTHS:
            cell = standing.cell("nin+srelu", condition, length)
            if cell is not None or length == "short":
                yield condition, length, cell


def _grid(
    condition: str,
    length: str,
    names: tuple[str, ...],
    paper: dict[str, tuple[float, ...]],
    cell: Cell | None,
    standing: Standing,
) -> TextTable:
    ours = learned_layers(cell.rival) if cell else {}
    headers = ["layer", *(h for name in names for h in (f"{name} paper", "ours", "spread"))]
    rows = []
    for layer, values in paper.items():
        line = [layer]
        for name in names:
            line.append(f"{values[LEARNED_NAMES.index(name)]:.2f}")
            learned = ours.get(layer)
            place = NAMES.index(name)
            line += (
                [f"{learned.mean[place]:.2f}", f"{learned.std[place]:.2f}"]
                if learned
                else ["not run", NOTHING]
            )
        rows.append(line)
    epochs = LENGTHS[length][condition]
    title = f"Table 3: {TITLES[condition]}, {' and '.join(names)}, ours after {epochs} epochs"
    note = "Means over the channels of a layer"
    if cell is None:
        how = how_to_run("nin+srelu", condition, standing)
        return TextTable(title, headers, rows, f"{note}. Not run: {how}.")
    seeds = counted(len(cell.rival.finished), "seed")
    note += f" and n = {seeds}; spread: standard deviation over these."
    if "a_r" in names:
        note += f"\n{_shapes(list(ours.values()))}"
    return TextTable(title, headers, rows, note)


def _shapes(learned: Sequence[LearnedLayer]) -> str:
    """How many channels of all layers have which slopes, in words."""

    def share(of: str) -> str:
        channels = sum(layer.channels for layer in learned)
        found = sum(layer.channels * getattr(layer, of) for layer in learned)
        return f"{100 * found / channels:.0f} %"

    return (
        f"Of all channels, {share('slower')} have a_r < 1, {share('rising')} have a_l < 0, and "
        f"{share('s_shaped')} have both slopes from 0 to 1: those are an S."
    )


def entries(standing: Standing) -> Iterator[dict[str, Any]]:
    """One plain value for each parameter of each layer, and each length that has records."""
    for condition, length, cell in _cells(standing):
        ours = learned_layers(cell.rival) if cell else {}
        for layer, values in LEARNED[condition].items():
            for name, value in zip(LEARNED_NAMES, values, strict=True):
                learned, place = ours.get(layer), NAMES.index(name)
                note = (
                    f"std over seeds; over channels {learned.std[place]:.4g}"
                    if learned
                    else f"not run: {how_to_run('nin+srelu', condition, standing)}"
                )
                yield entry(
                    f"nin+srelu:{layer}:{name}",
                    condition,
                    value,
                    learned.seeds[place] if learned else None,
                    protocol("nin+srelu", condition, length),
                    note,
                )
