"""The paper's figures by name, and two of ours: all errors, and the functions that were learned."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from ..results import PaperResults
from . import formula_figures, record_figures
from .drawing import render, styled
from .overview_figure import overview

FROM_FORMULAS: dict[str, Callable[[], Figure]] = {
    "figure1": formula_figures.figure1,
    "figure2": formula_figures.figure2,
}
FROM_RECORDS: dict[str, Callable[[PaperResults], Figure]] = {
    "figure3": record_figures.figure3,
    "figure4": record_figures.figure4,
    "functions": record_figures.learned_functions,
    "overview": overview,
}


def draw(name: str, kind: str, results: PaperResults | None = None) -> bytes:
    """The bytes of a figure as a file of that kind; those from records need ``results``."""
    with styled():
        figure = FROM_FORMULAS[name]() if results is None else FROM_RECORDS[name](results)
        return render(figure, kind)
