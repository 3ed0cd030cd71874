"""Figure 1: the Weber-Fechner and Stevens laws, and the SReLU forms that imitate them.

The text of the paper ties the two cases to t_r; it is a_r that decides: a tail flatter than the
identity (a_r < 1) bends like a logarithm, a steeper one (a_r > 1) like a power above 1.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...report import srelu_curves
from .drawing import COLOURS, legend, origin, panels, styled, threshold

STIMULUS = np.linspace(1e-3, 4, 800)
INPUT = np.linspace(-4, 4, 801)


def draw() -> Figure:
    """Draws the four panels (a) to (d).

    Example:
        >>> [axes.get_title()[:3] for axes in draw().axes]
        ['(a)', '(b)', '(c)', '(d)']
    """
    with styled():
        figure, (a, b, c, d) = panels(2, 2, (6.6, 5.4))
        _weber_fechner(a)
        _stevens(b)
        _forms(c, "(c) SReLU, tails flatter than 1: a logarithm", t=1.0, slopes=(0.1, 0.3, 0.6))
        _forms(d, "(d) SReLU, tails steeper than 1: a power", t=1.0, slopes=(1.4, 2.0, 3.5))
    return figure


def _weber_fechner(axes: Axes) -> None:
    origin(axes, (-0.3, 4), (-2.2, 2.4), r"(a) Weber-Fechner law  $s = k\,\log p$")
    for k, colour in zip((0.5, 1.0, 1.5), COLOURS, strict=False):
        axes.plot(STIMULUS, k * np.log(STIMULUS), color=colour, label=f"$k = {k:g}$")
    legend(axes)


def _stevens(axes: Axes) -> None:
    origin(axes, (-0.3, 4), (-0.3, 4), r"(b) Stevens law  $s = k\,p^e$")
    for e, colour in zip((0.5, 1.0, 1.6, 3.0), COLOURS, strict=False):
        axes.plot(STIMULUS, STIMULUS**e, color=colour, label=f"$e = {e:g}$")
    legend(axes)


def _forms(axes: Axes, title: str, *, t: float, slopes: tuple[float, ...]) -> None:
    """SReLU with thresholds -t and t and the same slope in both tails."""
    origin(axes, (-4, 4), (-4, 4), title)
    for slope, colour in zip(slopes, COLOURS, strict=False):
        y = srelu_curves.srelu(INPUT, t_r=t, a_r=slope, t_l=-t, a_l=slope)
        axes.plot(INPUT, y, color=colour, label=f"$a^r = a^l = {slope:g}$")
    threshold(axes, t, "$t^r$")
    threshold(axes, -t, "$t^l$")
    legend(axes)
