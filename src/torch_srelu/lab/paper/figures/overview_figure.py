"""The reproduction in one picture: test errors beside the paper's, and what the gain is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...config.recipes import CONDITIONS, LENGTHS
from ...util.colors import ACTIVATION_COLORS
from ..difference_tables import FIRST, FURTHER, NAMES, differences
from ..pair_tables import CHANGED
from ..published import ERRORS, TABLES, TITLES
from ..results import PaperResults
from .drawing import GRID, INK, SOFT

ROWS = tuple(f"nin+{name}" for name in NAMES)
ROW_TITLES = {row.name: row.title.removeprefix("NIN + ") for row in TABLES["table2"].rows}
COLUMNS = 2
# The paper's mark is above the middle of its row, the seeds of each length at and below it.
ABOVE, OFFSET = -0.22, {"published": 0.0, "short": 0.22}
DARKNESS = {"published": 1.0, "short": 0.4}


def overview(results: PaperResults) -> Figure:
    """Draws the errors of each data set that SReLU was trained on, and SReLU's changes below."""
    conditions = [c for c in TITLES if any(results.entry(ROWS[-1], c, n) for n in LENGTHS)]
    if not conditions:
        raise ValueError("no run with SReLU has a record yet: `srelu paper run headline`")
    changes = list(_changes(results))
    rows = -(-len(conditions) // COLUMNS)
    heights = (0.3 + 2.0 * rows, 0.6 + 0.19 * len(changes))
    figure = Figure(figsize=(8.2, sum(heights)), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights).ravel()
    panels = above.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes, condition in zip(panels, conditions, strict=False):
        _errors(axes, condition, results)
    for axes in panels[len(conditions) :]:  # there is room for the key
        axes.set_axis_off()
        axes.legend(handles=_key(), loc="center", labelspacing=1.2, frameon=False)
    if len(panels) == len(conditions):
        above.legend(handles=_key(), loc="outside upper center", ncols=3, frameon=False)
    _forest(below.subplots(), changes)
    return figure


def _errors(axes: Axes, condition: str, results: PaperResults) -> None:
    """One line a row: the paper's error, and ours of every seed, by length."""
    shown = [row for row in ROWS if any(results.entry(row, condition, n) for n in LENGTHS)]
    for place, row in enumerate(shown):
        colour = ACTIVATION_COLORS.get(row.removeprefix("nin+").removesuffix("-manual"), SOFT)
        paper = ERRORS[row, condition]
        axes.plot(paper, place + ABOVE, "D", mfc="none", mec=INK, markersize=5)
        for length, offset in OFFSET.items():
            entry = results.entry(row, condition, length)
            errors = list(entry.errors.values()) if entry else []
            heights = [place + offset] * len(errors)
            axes.plot(errors, heights, "o", color=colour, alpha=DARKNESS[length], markersize=4)
    epochs = LENGTHS["short"][CONDITIONS[condition]["dataset"]]
    length = "" if epochs == LENGTHS["short"]["cifar10"] else f", {epochs} epochs"  # not the key's
    axes.set_title(f"{TITLES[condition]}, NIN{length}", fontsize=9.5)
    axes.set(xlabel="test error, %")
    _rows(axes, [ROW_TITLES[row] for row in shown])


class ErrorChange(NamedTuple):
    """What an error is above SReLU's."""

    words: str
    colour: str
    mean: float | None = None  # None: no run finished
    interval: tuple[float, float] | None = None
    status: str = ""  # of the runs, where none finished


def _changes(results: PaperResults) -> Iterator[ErrorChange]:
    """Other activations, and SReLU with one decision changed, against SReLU on CIFAR-10."""
    found = [d for family in (FIRST, FURTHER) for d in differences(results, family)]
    for d in found:
        if d.condition == "cifar10" and d.baseline != "srelu-manual":  # which is a change, below
            paired = d.versus.paired
            words = f"{NAMES[d.baseline]}, n = {paired.n}"
            span = paired.interval and (-paired.interval[1], -paired.interval[0])
            yield ErrorChange(words, ACTIVATION_COLORS.get(d.baseline, SOFT), -paired.mean, span)
    for pair in CHANGED:
        _, changed, _, versus = pair.difference(results)
        if versus is not None:
            words = f"{pair.words}, n = {versus.paired.n}"
            yield ErrorChange(words, INK, versus.paired.mean, versus.paired.interval)
        elif changed is not None and changed.summary is None:
            yield ErrorChange(pair.words, INK, status=changed.mean_error)


def _forest(axes: Axes, changes: Sequence[ErrorChange]) -> None:
    """One line a change: its difference and its interval."""
    axes.axvline(0, color=ACTIVATION_COLORS["srelu"], linewidth=1.0)
    for place, change in enumerate(changes):
        if change.mean is None:
            axes.text(0.03, place, change.status, va="center", fontsize=8, color=SOFT)
            continue
        if change.interval:
            axes.plot(change.interval, [place, place], color=change.colour, linewidth=1.2)
        axes.plot(change.mean, place, "o", color=change.colour, markersize=4.5)
    axes.set_title("CIFAR-10, 100 epochs: points of test error above SReLU's", fontsize=9.5)
    axes.set(xlabel="paired difference and its 95 % interval over n seeds; 0: SReLU as it is")
    _rows(axes, [change.words for change in changes])


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """The first name at the top, and a quiet grid."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _key() -> list[Line2D]:
    diamond: dict[str, Any] = {"linestyle": "", "marker": "D", "mfc": "none", "markersize": 5}
    dot: dict[str, Any] = {"linestyle": "", "marker": "o", "color": INK, "markersize": 4}
    labels = {n: f"ours, {LENGTHS[n]['cifar10']} epochs, a dot for each seed" for n in OFFSET}
    ours = [Line2D([], [], alpha=DARKNESS[n], label=label, **dot) for n, label in labels.items()]
    return [Line2D([], [], mec=INK, label="the paper", **diamond), *ours]
