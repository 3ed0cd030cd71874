"""Figure 2: the piecewise-linear family - ReLU, LReLU, PReLU, APL, maxout - with SReLU beside it.

Every curve is the function itself, evaluated; parameters are examples of what each may learn.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ...models.activation_registry import APL
from ...report import srelu_curves
from .drawing import COLOURS, note, origin, panels, styled, threshold

INPUT = torch.linspace(-3, 3, 601, dtype=torch.float64)


def draw() -> Figure:
    """Draws the six panels.

    Example:
        >>> [axes.get_title() for axes in draw().axes]
        ['ReLU', 'LReLU', 'PReLU', 'APL', 'maxout', 'SReLU']
    """
    with styled():
        figure, (relu, lrelu, prelu, apl, maxout, srelu) = panels(2, 3, (7.4, 5.4))
        _panel(relu, "ReLU", "nothing learned", F.relu(INPUT))
        _panel(lrelu, "LReLU", "left slope given", F.leaky_relu(INPUT, 0.1))
        _prelu(prelu)
        _apl(apl)
        _maxout(maxout)
        _srelu(srelu)
    return figure


def _panel(axes: Axes, title: str, words: str, y: Tensor) -> None:
    origin(axes, (-3, 3), (-3, 3), title)
    note(axes, words)
    axes.plot(INPUT, y, color=COLOURS[0], linewidth=1.8, zorder=3)


def _aside(axes: Axes, x: Tensor, y: Tensor) -> None:
    axes.plot(x, y, "--", color=COLOURS[1], linewidth=1.0, zorder=2)


def _prelu(axes: Axes) -> None:
    def prelu(x: Tensor, slope: float) -> Tensor:
        return F.prelu(x, torch.tensor([slope], dtype=x.dtype))

    _panel(axes, "PReLU", "left slope learned; dashed: others", prelu(INPUT, 0.25))
    left = INPUT[INPUT <= 0]
    for slope in (-0.3, 0.6):
        _aside(axes, left, prelu(left, slope))


def _apl(axes: Axes) -> None:
    apl = APL((1, 1, 1), hinges=2, generator=torch.Generator()).double()
    with torch.no_grad():
        apl.a.copy_(torch.tensor([0.5, -0.8]).reshape(apl.a.shape))
        apl.b.copy_(torch.tensor([0.6, -1.0]).reshape(apl.b.shape))
        y = apl(INPUT[:, None, None, None]).squeeze()
    _panel(axes, "APL", "hinges learned, slope 1 on the right", y)
    _aside(axes, INPUT, INPUT)


def _maxout(axes: Axes) -> None:
    lines = torch.stack([w * INPUT + b for w, b in ((-0.6, -0.4), (0.25, 0.3), (1.3, -0.7))])
    _panel(axes, "maxout", "the largest of $K$ learned lines: convex", lines.amax(0))
    for line in lines:
        _aside(axes, INPUT, line)


def _srelu(axes: Axes) -> None:
    t_r, t_l = 1.2, -1.0
    y = srelu_curves.srelu(INPUT.numpy(), t_r, 0.35, t_l, 0.15)
    _panel(axes, "SReLU", "both thresholds and both tails learned", torch.from_numpy(y))
    threshold(axes, t_r, "$t^r$")
    threshold(axes, t_l, "$t^l$")
