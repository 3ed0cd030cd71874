"""Figure 4: how training converges on CIFAR-10 and CIFAR-100, drawn from records.

The paper does not say which error its curves show. These are the training loss and, since the test
data are opened once a run, the test error at the end, in the legend.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ...config.recipes import LENGTHS
from ...util.colors import ACTIVATION_COLORS
from ..blocks import CIFAR
from ..published import TITLES
from ..standing import Standing
from ..tables.cells import how_to_run
from .drawing import GRID, panels, styled

ROWS = {"nin+srelu": "SReLU", "nin+prelu": "PReLU", "nin+lrelu": "LReLU", "nin+relu": "ReLU"}


def draw(standing: Standing) -> Figure:
    """Draws (a) CIFAR-10 and (b) CIFAR-100: mean over seeds, and the range between them."""
    with styled():
        figure, (a, b) = panels(1, 2, (8.2, 3.6))
        for letter, axes, condition in zip("ab", (a, b), CIFAR, strict=True):
            length = longest(standing, condition)
            axes.set_title(f"({letter}) {TITLES[condition]}", fontsize=9.5)
            axes.set(xlabel="epoch", ylabel="training loss", yscale="log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:g}"))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.grid(color=GRID, linewidth=0.6)
            for row in ROWS:
                colour = ACTIVATION_COLORS[row.removeprefix("nin+")]
                _curve(axes, standing, row, condition, length, colour)
            if axes.lines:
                axes.legend(frameon=False, fontsize=8)
            else:
                how = how_to_run("nin+srelu", condition, standing).replace("`", "")
                axes.text(0.5, 0.5, f"not run\n{how}", transform=axes.transAxes, ha="center")
    return figure


def longest(standing: Standing, condition: str) -> str:
    """The longest of the lengths at which SReLU was trained."""
    trained = [n for n in LENGTHS if standing.cell("nin+srelu", condition, n)]
    return trained[-1] if trained else "short"


def _curve(
    axes: Axes, standing: Standing, row: str, condition: str, length: str, colour: str
) -> None:
    cell = standing.cell(row, condition, length)
    if cell is None or cell.rival.summary is None:
        return
    losses = np.array([[m.train_loss for m in r.metrics] for r in cell.rival.finished])  # (n, E)
    epochs = np.arange(1, losses.shape[1] + 1)
    summary = cell.rival.summary
    label = f"{ROWS[row]}: {summary.mean:.2f} % test error, n = {summary.n}"
    line = "--" if row == "nin+relu" else "-"  # its colour is as dark as PReLU's
    axes.plot(epochs, losses.mean(0), line, color=colour, linewidth=1.2, label=label)
    axes.fill_between(epochs, losses.min(0), losses.max(0), color=colour, alpha=0.2, linewidth=0)
