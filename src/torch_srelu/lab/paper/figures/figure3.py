"""Figure 3: how large the inputs of each activation are, from the first layer to the last.

In the paper, GoogLeNet: the reason why no one threshold, set by hand, suits all layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...models import network_registry
from ...records.run_record import Record
from ..contests import OWN
from ..published import IMAGENET
from ..standing import Standing
from ..tables.cells import how_to_run
from .drawing import COLOURS, GRID, INK, SOFT, panels, styled

CAPTION = "Mean magnitude of the inputs of GoogLeNet's SReLUs at the end, averaged over seeds"


def recorded(standing: Standing) -> Sequence[Record]:
    """The finished runs of GoogLeNet with SReLU."""
    cell = standing.cell("googlenet+srelu", IMAGENET, OWN)
    return [] if cell is None else cell.rival.finished


def draw_recorded(standing: Standing) -> Figure:
    """Draws what went into the SReLUs of GoogLeNet at the end of its training: mean over seeds."""
    found = recorded(standing)
    if not found:
        raise ValueError(
            "Figure 3 is drawn from GoogLeNet with SReLU, which has no finished record yet: "
            f"{how_to_run('googlenet+srelu', IMAGENET, standing)}"
        )
    return draw(_magnitudes(found))


def _magnitudes(found: Sequence[Record]) -> dict[str, float]:
    """By layer, from low to high: records do not keep their order, the network has it."""
    inputs = [record.inputs() for record in found]
    last = [{name: m[-1].item() for name, m in i.magnitude.items()} for i in inputs if i]
    net = network_registry.network_spec(found[0].run.net).build(found[0].run.activation)
    order = [name for name, _ in net.activations() if all(name in values for values in last)]
    return {name: float(np.mean([values[name] for values in last])) for name in order}


def draw(magnitude: Mapping[str, float]) -> Figure:
    """Draws one point a layer.

    Args:
        magnitude: The mean absolute input of each layer's activation, from low to high layers.
            What stands before the last dot of a name is the block the layer belongs to.

    Example:
        >>> figure = draw({"stem.conv1": 90.0, "3a.one": 12.0, "3a.three": 25.0})
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['stem', '3a']
    """
    with styled():
        figure, (axes,) = panels(1, 1, (7.4, 3.2))
        index = range(1, len(magnitude) + 1)
        axes.plot(index, list(magnitude.values()), "o-", color=COLOURS[1], markersize=4, zorder=2)
        axes.set_yscale("log")
        axes.set(xlim=(0.3, len(magnitude) + 0.7), xlabel="layer, from low to high")
        axes.set_ylabel("mean magnitude of the inputs")
        axes.set_title("Inputs of the activations, layer by layer", fontsize=9.5, color=INK)
        axes.grid(axis="y", color=GRID, zorder=0)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
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
