"""Figures 1 and 2: curves of functions, SReLU's among them, each evaluated as it is defined.

The text of the paper ties the two cases of Figure 1 to t_r; it is a_r that decides: a tail flatter
than the identity (a_r < 1) bends like a logarithm, a steeper one (a_r > 1) like a power above 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ...models.activation_registry import APL
from ...report import srelu_curves
from .drawing import COLOURS, SOFT, origin, panels, threshold

STIMULUS = np.linspace(1e-3, 4, 800)
WIDE = np.linspace(-4, 4, 801)
INPUT = torch.linspace(-3, 3, 601, dtype=torch.float64)


def figure1() -> Figure:
    """The Weber-Fechner and Stevens laws, and the SReLU forms that imitate them.

    Example:
        >>> [axes.get_title()[:3] for axes in figure1().axes]
        ['(a)', '(b)', '(c)', '(d)']
    """
    figure, (a, b, c, d) = panels(2, 2, (6.6, 5.4))
    origin(a, (-0.3, 4), (-2.2, 2.4), r"(a) Weber-Fechner law  $s = k\,\log p$")
    _curves(a, STIMULUS, lambda k: k * np.log(STIMULUS), "k", (0.5, 1.0, 1.5))
    origin(b, (-0.3, 4), (-0.3, 4), r"(b) Stevens law  $s = k\,p^e$")
    _curves(b, STIMULUS, lambda e: STIMULUS**e, "e", (0.5, 1.0, 1.6, 3.0))
    _forms(c, "(c) SReLU, tails flatter than 1: a logarithm", t=1.0, slopes=(0.1, 0.3, 0.6))
    _forms(d, "(d) SReLU, tails steeper than 1: a power", t=1.0, slopes=(1.4, 2.0, 3.5))
    return figure


def _curves(
    axes: Axes,
    x: np.ndarray,
    function: Callable[[float], np.ndarray],
    name: str,
    values: Sequence[float],
) -> None:
    for value, colour in zip(values, COLOURS, strict=False):
        axes.plot(x, function(value), color=colour, label=f"${name} = {value:g}$")
    corner: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 0.07)}  # free of curves
    axes.legend(**corner, frameon=False, fontsize=8, handlelength=1.4, labelspacing=0.3)


def _forms(axes: Axes, title: str, *, t: float, slopes: tuple[float, ...]) -> None:
    """SReLU with thresholds -t and t and the same slope in both tails."""
    origin(axes, (-4, 4), (-4, 4), title)
    _curves(axes, WIDE, lambda a: srelu_curves.srelu(WIDE, t, a, -t, a), "a^r = a^l", slopes)
    threshold(axes, t, "$t^r$")
    threshold(axes, -t, "$t^l$")


def figure2() -> Figure:
    """The piecewise-linear family; parameters are examples of what each may learn.

    Example:
        >>> [axes.get_title() for axes in figure2().axes]
        ['ReLU', 'LReLU', 'PReLU', 'APL', 'maxout', 'SReLU']
    """
    figure, (relu, lrelu, prelu, apl, maxout, srelu) = panels(2, 3, (7.4, 5.4))
    _panel(relu, "ReLU", "nothing learned", F.relu(INPUT))
    _panel(lrelu, "LReLU", "left slope given", F.leaky_relu(INPUT, 0.1))
    _panel(prelu, "PReLU", "left slope learned; dashed: others", F.leaky_relu(INPUT, 0.25))
    left = INPUT[INPUT <= 0]
    for slope in (-0.3, 0.6):
        _dashed(prelu, left, slope * left)
    _panel(apl, "APL", "hinges learned, slope 1 on the right", _apl())
    _dashed(apl, INPUT, INPUT)
    lines = torch.stack([w * INPUT + b for w, b in ((-0.6, -0.4), (0.25, 0.3), (1.3, -0.7))])
    _panel(maxout, "maxout", "the largest of $K$ learned lines: convex", lines.amax(0))
    for line in lines:
        _dashed(maxout, INPUT, line)
    t_r, t_l = 1.2, -1.0
    y = srelu_curves.srelu(INPUT.numpy(), t_r, 0.35, t_l, 0.15)
    _panel(srelu, "SReLU", "both thresholds and both tails learned", torch.from_numpy(y))
    threshold(srelu, t_r, "$t^r$")
    threshold(srelu, t_l, "$t^l$")
    return figure


def _panel(axes: Axes, title: str, words: str, y: Tensor) -> None:
    origin(axes, (-3, 3), (-3, 3), title)
    middle: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "top"}
    axes.text(0.5, -0.03, words, color=SOFT, fontsize=8, **middle)
    axes.plot(INPUT, y, color=COLOURS[0], linewidth=1.8, zorder=3)


def _dashed(axes: Axes, x: Tensor, y: Tensor) -> None:
    axes.plot(x, y, "--", color=COLOURS[1], linewidth=1.0, zorder=2)


def _apl() -> Tensor:
    apl = APL((1, 1, 1), hinges=2, generator=torch.Generator()).double()
    with torch.no_grad():
        apl.a.copy_(torch.tensor([0.5, -0.8]).reshape(apl.a.shape))
        apl.b.copy_(torch.tensor([0.6, -1.0]).reshape(apl.b.shape))
        return apl(INPUT[:, None, None, None]).squeeze()
