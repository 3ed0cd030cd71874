"""The paper's figures by name."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from . import figure1, figure2
from .drawing import FORMATS, render

DRAWN: dict[str, Callable[[], Figure]] = {"figure1": figure1.draw, "figure2": figure2.draw}

__all__ = ["DRAWN", "FORMATS", "render"]
