"""One colour for each activation, in every figure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

OWN = {"srelu": "#d1495b", "prelu": "#2e6f95", "lrelu": "#3a7d44", "relu": "#8e6c8a"}
OTHERS = ("#c79a2b", "#4aa3a2", "#8a7461", "#7d8794", "#c26d9a")


def colours(activations: Iterable[str]) -> list[str]:
    """A colour for each: its own the first time; the second time, or if it has none, another.

    Example:
        >>> colours(["relu", "srelu", "srelu"])
        ['#8e6c8a', '#d1495b', '#c79a2b']
    """
    own, others = dict(OWN), itertools.cycle(OTHERS)
    return [own.pop(name, None) or next(others) for name in activations]
