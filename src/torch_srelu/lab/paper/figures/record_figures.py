"""Figures drawn from records: inputs by layer (3), convergence (4) and learned functions.

Figure 3 is the paper's reason why no one threshold, set by hand, suits all layers. The paper does
not say which error its Figure 4 shows: here it is the training loss and, since the test data are
opened once a run, the test error at the end, in the legend. Table 3 has the means of what was
learned; a mean hides that channels differ more than layers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ...analysis.learned_parameters import input_magnitudes
from ...config.recipes import LENGTHS
from ...records.run_record import Record
from ...report import srelu_curves
from ...util.colors import ACTIVATION_COLORS
from ..difference_tables import NAMES
from ..experiments import OWN
from ..published import CIFAR, IMAGENET, TITLES
from ..results import Entry, PaperResults
from .drawing import COLOURS, GRID, INK, SOFT, panels

CONVERGING = ("srelu", "prelu", "lrelu", "relu")
COLUMNS = 3
SHOWN = 24  # channels of a layer, evenly spaced
RANGE = (0.01, 0.99)  # quantiles of a layer's inputs between which it is drawn


def google_net(results: PaperResults) -> Entry | None:
    """GoogLeNet with SReLU, if any of its runs finished."""
    entry = results.entry("googlenet+srelu", IMAGENET, OWN)
    return entry if entry and entry.finished else None


def figure3(results: PaperResults) -> Figure:
    """What went into the SReLUs of GoogLeNet at the end of its training: mean over seeds."""
    entry = google_net(results)
    if entry is None:
        raise ValueError(
            "Figure 3 is drawn from GoogLeNet with SReLU, which has no finished record yet: "
            f"{results.how_to_run('googlenet+srelu', IMAGENET)}"
        )
    return draw_magnitudes(input_magnitudes(entry))


def draw_magnitudes(magnitude: Mapping[str, float]) -> Figure:
    """Draws one point a layer.

    Args:
        magnitude: The mean absolute input of each layer's activation, from low to high layers.
            What stands before the last dot of a name is the block the layer belongs to.

    Example:
        >>> figure = draw_magnitudes({"stem.conv1": 90.0, "3a.one": 12.0, "3a.three": 25.0})
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['stem', '3a']
    """
    figure, (axes,) = panels(1, 1, (7.4, 3.2))
    index = range(1, len(magnitude) + 1)
    axes.plot(index, list(magnitude.values()), "o-", color=COLOURS[1], markersize=4, zorder=2)
    axes.set(xlim=(0.3, len(magnitude) + 0.7), xlabel="layer, from low to high", yscale="log")
    axes.set_ylabel("mean magnitude of the inputs")
    axes.set_title("Inputs of the activations, layer by layer", fontsize=9.5, color=INK)
    axes.grid(axis="y", color=GRID, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    _name_blocks(axes, list(magnitude))
    return figure


def _name_blocks(axes: Axes, layers: list[str]) -> None:
    """Writes each block's name below its layers and parts it from the next."""
    middles, names, end = [], [], 0
    for block, members in groupby(layers, key=lambda layer: layer.split(".")[-2:][0]):
        begin, end = end, end + len(list(members))
        middles.append((begin + end + 1) / 2)
        names.append(block)
        if end < len(layers):
            axes.axvline(end + 0.5, color=SOFT, linewidth=0.5, linestyle=":", zorder=1)
    axes.set_xticks(middles, names)
    axes.tick_params(axis="x", length=0)


def figure4(results: PaperResults) -> Figure:
    """Convergence on (a) CIFAR-10 and (b) CIFAR-100: mean over seeds, and the range of these."""
    figure, (a, b) = panels(1, 2, (8.2, 3.6))
    for letter, axes, condition in zip("ab", (a, b), CIFAR, strict=True):
        axes.set_title(f"({letter}) {TITLES[condition]}", fontsize=9.5)
        axes.set(xlabel="epoch", ylabel="training loss", yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(color=GRID, linewidth=0.6)
        for activation in CONVERGING:
            _losses(axes, results, activation, condition)
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
        else:
            how = results.how_to_run("nin+srelu", condition).replace("`", "")
            axes.text(0.5, 0.5, f"not run\n{how}", transform=axes.transAxes, ha="center")
    return figure


def _longest(results: PaperResults, condition: str) -> str:
    """The longest of the lengths at which SReLU was trained."""
    trained = [n for n in LENGTHS if results.entry("nin+srelu", condition, n)]
    return trained[-1] if trained else "short"


def _losses(axes: Axes, results: PaperResults, activation: str, condition: str) -> None:
    entry = results.entry(f"nin+{activation}", condition, _longest(results, condition))
    if entry is None or entry.summary is None:
        return
    losses = np.array([[m.train_loss for m in r.metrics] for r in entry.finished])  # (n, E)
    epochs, colour = np.arange(1, losses.shape[1] + 1), ACTIVATION_COLORS[activation]
    mean, n = entry.summary.mean, entry.summary.n
    label = f"{NAMES[activation]}: {mean:.2f} % test error, n = {n}"
    line = "--" if activation == "relu" else "-"  # its colour is as dark as PReLU's
    axes.plot(epochs, losses.mean(0), line, color=colour, linewidth=1.2, label=label)
    axes.fill_between(epochs, losses.min(0), losses.max(0), color=colour, alpha=0.2, linewidth=0)


def learned_functions(results: PaperResults) -> Figure:
    """SReLU's layers for each data set, of the first seed at the longest length there is."""
    found = learned_records(results)
    if not found:
        raise ValueError(
            "no run with SReLU has a record yet, whose functions could be drawn: "
            "`srelu paper run headline`"
        )
    rows = -(-max(len(r.parameters()) for r in found.values()) // COLUMNS)  # of each data set
    figure, axes = panels(len(found) * rows, COLUMNS, (7.4, 1.8 * rows * len(found)))
    for place, (condition, record) in enumerate(found.items()):
        _layers(axes[place * rows * COLUMNS :], TITLES[condition], record)
    figure.supxlabel("input", fontsize=8)
    figure.supylabel("output", fontsize=8)
    return figure


def learned_records(results: PaperResults) -> dict[str, Record]:
    """The run whose functions are drawn for each data set, if there is one."""
    entries = {c: results.entry("nin+srelu", c, _longest(results, c)) for c in CIFAR}
    found = {c: [r for r in entry.finished if r.inputs()] for c, entry in entries.items() if entry}
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
    y = srelu_curves.srelu(x, *params)
    axes.axhline(0, color=SOFT, linewidth=0.5)
    axes.axvline(0, color=SOFT, linewidth=0.5)
    axes.plot(x[:, some], y[:, some], color=COLOURS[0], linewidth=0.5, alpha=0.45)
    grid = np.linspace(low, high, 81)
    every = srelu_curves.srelu(np.repeat(grid[:, None], channels, axis=1), *params)
    axes.plot(grid, every.mean(1), color=INK, linewidth=1.3)
    axes.set_title(title, fontsize=8.5)
    axes.tick_params(labelsize=7.5, length=2, pad=1.5)
