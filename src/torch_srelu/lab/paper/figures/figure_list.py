"""The paper's figures by name, and two of ours: all errors, and the functions that were learned."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from ..standing import Standing
from . import figure1, figure2, figure3, figure4, learned_functions, overview
from .drawing import FORMATS, render

DRAWN: dict[str, Callable[[], Figure]] = {"figure1": figure1.draw, "figure2": figure2.draw}
FROM_RECORDS: dict[str, Callable[[Standing], Figure]] = {
    "figure3": figure3.draw_recorded,
    "figure4": figure4.draw,
    "functions": learned_functions.draw,
    "overview": overview.draw,
}

__all__ = ["DRAWN", "FORMATS", "FROM_RECORDS", "render"]
