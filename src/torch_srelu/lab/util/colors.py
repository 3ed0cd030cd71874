"""The colors of activations in figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

ACTIVATION_COLORS = {"srelu": "#d1495b", "prelu": "#2e6f95", "lrelu": "#3a7d44", "relu": "#8e6c8a"}
OTHER_COLORS = ("#c79a2b", "#4aa3a2", "#8a7461", "#7d8794", "#c26d9a")


def activation_colors(activations: Iterable[str]) -> list[str]:
    """A color for each: its own the first time; the second time, or if it has none, another.

    Example:
        >>> activation_colors(["relu", "srelu", "srelu"])
        ['#8e6c8a', '#d1495b', '#c79a2b']
    """
    own, others = dict(ACTIVATION_COLORS), itertools.cycle(OTHER_COLORS)
    return [own.pop(name, None) or next(others) for name in activations]
