"""What the paper's figures share: a panel with axes through the origin, and how a file is made."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...util.colors import ACTIVATION_COLORS

INK, SOFT, GRID = "#1b1f24", "#8b949e", "#e6e8eb"
COLOURS = tuple(ACTIVATION_COLORS.values())  # the first is SReLU's

STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "font.family": "sans-serif",
    "mathtext.fontset": "cm",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.hashsalt": "torch-srelu",  # the same figure is the same file
    "svg.fonttype": "none",
}
FORMATS = ("png", "svg", "pdf")


def styled() -> AbstractContextManager[None]:
    """Inside, figures are drawn and saved in the style of this file, whatever the user's is."""
    return mpl.rc_context(STYLE)


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
