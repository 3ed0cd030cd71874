"""What the paper's figures share: a panel with axes through the origin, and how a file is made."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...util.colors import ACTIVATION_COLORS

INK, SOFT, GRID = "#1b1f24", "#8b949e", "#e6e8eb"
COLOURS = tuple(ACTIVATION_COLORS.values())  # the first is SReLU's

FORMATS = ("png", "svg", "pdf")


def styled() -> AbstractContextManager[None]:
    """Inside, figures are drawn and saved as figures.mplstyle says, whatever the user has."""
    return style.context("torch_srelu.lab.paper.figures.figures")


def origin(axes: Axes, x: tuple[float, float], y: tuple[float, float], title: str) -> None:
    """Makes ``axes`` a bare coordinate cross through 0 with the given limits and title."""
    axes.set(xlim=x, ylim=y, xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(False)
    # Below the curves: ReLU lies on the axis.
    axes.spines[["left", "bottom"]].set(position="zero", linewidth=0.8, zorder=1)
    axes.set_title(title, fontsize=9.5, pad=8)


def threshold(axes: Axes, t: float, label: str) -> None:
    """Marks a threshold of SReLU: a dotted line from the axis to the curve, with its name."""
    axes.plot([t, t], [0, t], ":", color=SOFT, linewidth=0.9, zorder=1)
    below = t > 0
    axes.annotate(
        label,
        (t, 0),
        xytext=(0, -3 if below else 3),
        textcoords="offset points",
        ha="center",
        va="top" if below else "bottom",
    )


def panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Sequence[Axes]]:
    """An empty figure of ``size`` inches and its axes, row by row."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    return figure, list(axes)


def render(figure: Figure, kind: str) -> bytes:
    """The figure as the bytes of a file of that kind: "png", "svg" or "pdf"."""
    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with styled():
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
    return buffer.getvalue()
