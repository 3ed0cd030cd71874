"""The report's figures of comparisons, in plotly. The page sets the colors of paper and text."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import plotly.graph_objects as go

from ..analysis.comparison import Comparison, Rival
from ..analysis.learned_parameters import input_magnitudes
from ..analysis.sample_statistics import summarise
from ..util.colors import activation_colors


def rival_colors(comparison: Comparison) -> dict[str, str]:
    """A color for each rival by name."""
    rivals = {rival.name: rival.records[0].run.activation for rival in comparison.rivals}
    return dict(zip(rivals, activation_colors(rivals.values()), strict=True))


def errors(comparison: Comparison) -> go.Figure | None:
    """Every run's test error as a dot, each rival's mean and 95 % interval; None without any."""
    figure = go.Figure()
    palette = rival_colors(comparison)
    for rival in reversed(comparison.rivals):
        if rival.summary is None:
            continue
        name, color, summary = escape(rival.name), palette[rival.name], rival.summary
        figure.add_scatter(
            x=list(rival.errors.values()),
            y=[name] * len(rival.errors),
            customdata=list(rival.errors),
            mode="markers",
            marker={"color": color, "size": 10, "opacity": 0.55},
            hovertemplate="seed %{customdata}: %{x:.2f} %<extra></extra>",
        )
        low, high = summary.interval or (summary.mean, summary.mean)
        bar = {"type": "data", "array": [high - summary.mean], "arrayminus": [summary.mean - low]}
        bar |= {"color": color, "thickness": 1.5, "width": 0}
        figure.add_scatter(
            x=[summary.mean],
            y=[name],
            error_x=bar if summary.interval else None,
            mode="markers",
            marker={"color": color, "size": 16, "symbol": "line-ns"},
            marker_line={"color": color, "width": 3},
            hovertemplate=f"mean of {summary.n}: %{{x:.2f}} %<extra></extra>",
        )
    # Else the axis would begin below 0, to have room for the dots.
    figure.update_xaxes(rangemode="nonnegative")
    return _titled(figure, x="test error, %", showlegend=False)


def convergence(
    comparison: Comparison, column: str, label: str, unit: float = 1
) -> go.Figure | None:
    """The paper's Figure 4: a column of the metrics, times ``unit``, by epoch.

    The line is the mean over seeds, the band reaches from the lowest to the highest; None if no run
    has the column.
    """
    figure = go.Figure()
    palette = rival_colors(comparison)
    lowest, highest = math.inf, 0.0
    for rival in comparison.rivals:
        epochs, low, mean, high = _band(rival, column, unit)
        if not epochs:
            continue
        lowest, highest = min(lowest, *low), max(highest, *high)
        name, color = escape(rival.name), palette[rival.name]
        figure.add_scatter(
            x=[*epochs, *epochs[::-1]],
            y=[*high, *low[::-1]],
            mode="lines",
            fill="toself",
            fillcolor=_faint(color),
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=name,
            showlegend=False,
        )
        figure.add_scatter(
            x=epochs,
            y=mean,
            mode="lines",
            line={"color": color, "width": 2.2},
            name=name,
            legendgroup=name,
            hovertemplate=f"{name} %{{y:.4g}}<extra></extra>",
        )
    if 0 < lowest < math.inf:
        ticks = _log_ticks(lowest, highest)
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks])
    return _titled(figure, x="epoch", y=label, hovermode="x unified")


def magnitude(comparison: Comparison) -> go.Figure | None:
    """The paper's Figure 3: mean magnitude of each activation's inputs, by layer, last epoch."""
    figure = go.Figure()
    palette = rival_colors(comparison)
    for rival in comparison.rivals:
        means = input_magnitudes(rival)
        if not means:
            continue
        figure.add_scatter(
            x=[*map(escape, means)],
            y=[*means.values()],
            mode="lines+markers",
            line={"color": palette[rival.name], "width": 2},
            marker={"size": 7},
            name=escape(rival.name),
            hovertemplate=f"{escape(rival.name)} %{{y:.3g}}<extra></extra>",
        )
    figure.update_yaxes(rangemode="tozero")
    return _titled(figure, y="mean |input|", hovermode="x unified")


def _band(
    rival: Rival, column: str, unit: float
) -> tuple[list[int], list[float], list[float], list[float]]:
    """Epochs, and the lowest, mean and highest value over the seeds in each.

    Runs that are dead or diverged are left out. An epoch is shown if every run has it, so that the
    mean is always over the same runs.
    """
    runs = [
        {m.epoch: unit * value for m in r.metrics if (value := getattr(m, column)) is not None}
        for r in rival.finished
    ]
    epochs = sorted(set.intersection(*map(set, runs))) if runs else []
    values = [[run[epoch] for run in runs] for epoch in epochs]
    means = [summarise(v).mean for v in values]
    return epochs, [min(v) for v in values], means, [max(v) for v in values]


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers around [low, high]: powers of ten, with 2 and 5 between if they are few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 3 else (1,)
    return [float(f"{step}e{decade}") for decade in decades for step in steps]


def _faint(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _titled(figure: go.Figure, *, x: str = "", y: str = "", **layout: Any) -> go.Figure | None:
    """Sets axis titles, and leaves the colors of page, text and grid to it; None if it is empty."""
    if not figure.data:
        return None
    figure.update_layout(template="none", **layout)
    return figure.update_xaxes(title_text=x or None).update_yaxes(title_text=y or None)
