"""A comparison as a table: for the terminal, as Markdown, CSV and JSON, and for the report.

All of them are made from the same rows: `cells` for people, `numbers` for programs.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from .comparison import DEAD, DIVERGED, FINISHED, UNFINISHED, Comparison, Rival
from .statistics import Interval

NOTHING = "-"


def headers(comparison: Comparison) -> list[str]:
    """The column titles that belong to `cells`."""
    base = comparison.baseline.name
    columns = ["activation", "test error %", "std", "95 % interval", "n"]
    return [*columns, f"minus {base}", "95 % interval", "p (Holm)", "s / run"]


def cells(comparison: Comparison) -> list[list[str]]:
    """One row of text for each rival, in the order of `headers`."""
    return [_row(comparison, rival) for rival in comparison.rivals]


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know beside the table: how the numbers came about, what they rest on."""
    said = ["Error at the last epoch, never the best; n runs that differ in the seed alone."]
    fallen = [_fate(rival) for rival in comparison.rivals if set(rival.fates) != {FINISHED}]
    if fallen:
        said.append(f"Not in the means: {'; '.join(fallen)}.")
    for name, versus in comparison.versus.items():
        ways = []
        if versus.pooled and comparison.pooled:
            degrees = comparison.pooled.degrees
            ways.append(f"{_interval(versus.pooled, '+')} (spread of all rivals, {degrees} d.f.)")
        if versus.images:
            ways.append(f"{_interval(versus.images, '+')} (bootstrap over test images)")
        if ways:
            base = comparison.baseline.name
            said.append(f"{name} minus {base}, other 95 % intervals: {', '.join(ways)}.")
    return said


def text(comparison: Comparison) -> Table:
    """The table for a terminal. A name that looks like markup is shown as it is."""
    table = Table(
        title=Text(comparison.title),
        caption=Text("\n".join(notes(comparison))),
        caption_justify="left",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for i, header in enumerate(headers(comparison)):
        table.add_column(Text(header), justify="right" if i else "left", no_wrap=not i)
    for row in cells(comparison):
        table.add_row(*map(Text, row))
    return table


def markdown(comparison: Comparison) -> str:
    """The table and its notes as GitHub Markdown."""

    def line(values: list[str]) -> str:
        return "| " + " | ".join(v.replace("|", "\\|") for v in values) + " |"

    titles = headers(comparison)
    rule = "|---|" + "---:|" * (len(titles) - 1)
    rows = [line(row) for row in cells(comparison)]
    said = [f"- {note}" for note in notes(comparison)]
    title = f"**{comparison.title}**"
    return "\n".join([title, "", line(titles), rule, *rows, "", *said, ""])


def to_csv(comparisons: list[Comparison]) -> str:
    """Every number, one line for each rival; empty where there is none."""
    rows = [row for comparison in comparisons for row in numbers(comparison)]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def to_json(comparisons: list[Comparison]) -> str:
    """Protocol, baseline and every number of each comparison."""
    plain = [
        {
            "protocol": comparison.protocol,
            "baseline": comparison.baseline.name,
            "rivals": numbers(comparison),
        }
        for comparison in comparisons
    ]
    return json.dumps(plain, indent=2) + "\n"


def numbers(comparison: Comparison) -> list[dict[str, Any]]:
    """One flat row of numbers for each rival; differences are in points of percent."""
    pooled = comparison.pooled
    rows = []
    for rival in comparison.rivals:
        summary, versus = rival.summary, comparison.versus.get(rival.name)
        rows.append(
            {
                "dataset": comparison.protocol["dataset"],
                "net": comparison.protocol["net"],
                "epochs": comparison.protocol["epochs"],
                "activation": rival.name,
                "n": rival.fates[FINISHED],
                "dead": rival.fates[DEAD],
                "diverged": rival.fates[DIVERGED],
                "unfinished": rival.fates[UNFINISHED],
                "error_mean": summary and summary.mean,
                "error_std": summary and summary.std,
                **_ends("error", summary and summary.interval),
                **_ends("error_pooled", _pooled_mean(comparison, rival)),
                "pooled_std": pooled and pooled.std,
                "pooled_degrees": pooled and pooled.degrees,
                "seconds": rival.seconds,
                "baseline": comparison.baseline.name,
                "pairs": versus and versus.paired.n,
                "difference": versus and versus.paired.mean,
                "difference_std": versus and versus.paired.std,
                **_ends("difference", versus and versus.paired.interval),
                **_ends("difference_pooled", versus and versus.pooled),
                **_ends("difference_images", versus and versus.images),
                "p": versus and versus.paired.p,
                "p_holm": versus and versus.p,
            }
        )
    return rows


def _pooled_mean(comparison: Comparison, rival: Rival) -> Interval | None:
    if comparison.pooled is None or rival.summary is None:
        return None
    return comparison.pooled.interval(rival.summary.mean, rival.summary.n)


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _row(comparison: Comparison, rival: Rival) -> list[str]:
    summary, versus = rival.summary, comparison.versus.get(rival.name)
    return [
        rival.name,
        f"{summary.mean:.2f}" if summary else NOTHING,
        f"{summary.std:.2f}" if summary and summary.std is not None else NOTHING,
        _interval(summary and summary.interval),
        _count(rival),
        f"{versus.paired.mean:+.2f}" if versus else NOTHING,
        _interval(versus and versus.paired.interval, "+"),
        _probability(versus and versus.p),
        f"{rival.seconds:.1f}" if rival.seconds is not None else NOTHING,
    ]


def _count(rival: Rival) -> str:
    finished, total = rival.fates[FINISHED], sum(rival.fates.values())
    return str(finished) if finished == total else f"{finished} of {total}"


def _fate(rival: Rival) -> str:
    fallen = [f"{n} {fate}" for fate, n in rival.fates.items() if fate != FINISHED]
    return f"{rival.name}: {', '.join(fallen)}"


def _interval(interval: Interval | None, sign: str = "") -> str:
    if interval is None:
        return NOTHING
    return " to ".join(f"{end:{sign}.2f}" for end in interval)


def _probability(p: float | None) -> str:
    if p is None:
        return NOTHING
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
