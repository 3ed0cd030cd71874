"""A comparison as a table: for the terminal, as Markdown, CSV and JSON, and for the report.

For people all of them show the same `grids`; for programs there are the `numbers`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..._text import counted
from ..records.run_status import DEAD, DIVERGED, FINISHED, UNFINISHED
from .comparison import Comparison, Rival
from .sample_statistics import FEWEST_PAIRS, Interval, possible

NOTHING = "-"
CHANCE = 0.05  # p-values below it are called a difference in the verdict


class Grid(NamedTuple):
    """A small table of text: title, column titles, rows, and what a reader must know below it."""

    title: str
    headers: list[str]
    rows: list[list[str]]
    note: str


def grids(comparison: Comparison) -> list[Grid]:
    """The errors of all rivals and, if there is anything to compare, their differences."""
    return [errors(comparison), *differences(comparison)]


def errors(comparison: Comparison) -> Grid:
    """Each rival's test error with its spread and interval."""
    headers = ["activation", "test error %", "std", "95 % interval", "n", "seconds a run"]
    rows = [
        [
            rival.name,
            f"{s.mean:.2f}" if s else NOTHING,
            f"{s.std:.2f}" if s and s.std is not None else NOTHING,
            interval(s and s.interval),
            _count(rival),
            f"{rival.seconds:.1f}" if rival.seconds is not None else NOTHING,
        ]
        for rival in comparison.rivals
        for s in [rival.summary]
    ]
    note = "Error at the last epoch, never the best; n runs that differ in the seed alone."
    fallen = [_fate(rival) for rival in comparison.rivals if set(rival.fates) != {FINISHED}]
    if fallen:
        note += f" Not in the means: {'; '.join(fallen)}."
    note += f" Trained on {'; '.join(comparison.places)}."
    loads = {e.get("beside", 1) for record in comparison.records for e in record.environments}
    if len(loads) > 1:
        note += " Seconds do not compare: not all runs shared the device with as many others."
    return Grid(comparison.title, headers, rows, note)


def differences(comparison: Comparison) -> list[Grid]:
    """Each rival's test error minus the baseline's: the paired test, then the other intervals.

    Two tables, because three intervals beside the test are wider than a terminal. Empty if there
    is nothing to compare.
    """
    return [_tests(comparison), _other_intervals(comparison)] if comparison.versus else []


def _tests(comparison: Comparison) -> Grid:
    rows = [
        [
            name,
            f"{versus.paired.mean:+.2f}",
            interval(versus.paired.interval),
            str(versus.paired.n),
            probability(versus.p),
        ]
        for name, versus in comparison.versus.items()
    ]
    note = (
        "Points of percent. Paired over n seeds that both finished, Student's 95 % interval from "
        f"n = {FEWEST_PAIRS} on; p is two-sided, corrected by Holm over this table."
    )
    headers = ["activation", "points", "95 % interval", "n", "p (Holm)"]
    return Grid(f"Test error minus that of {comparison.baseline.name}", headers, rows, note)


def _other_intervals(comparison: Comparison) -> Grid:
    rows = [
        [name, interval(versus.pooled), interval(versus.images)]
        for name, versus in comparison.versus.items()
    ]
    note = "95 % intervals of the same differences. Images: bootstrap over the test images."
    if comparison.pooled:
        degrees = comparison.pooled.degrees
        note += f" Pooled: from the spread within all rivals, degrees of freedom {degrees}"
        note += "; unpaired, over all seeds of either." if _unpaired(comparison) else "."
    title = f"Test error minus that of {comparison.baseline.name}: other intervals"
    return Grid(title, ["activation", "pooled", "images"], rows, note)


def _unpaired(comparison: Comparison) -> bool:
    """Whether a rival or the baseline has seeds that the other has not."""
    base = comparison.baseline.errors.keys()
    return any(r.errors.keys() != base for r in comparison.rivals if r.name in comparison.versus)


def verdict(comparison: Comparison) -> str:
    """The result in a sentence that claims no more than the test supports; empty without one.

    Says who has the lowest mean error and whether that differs from the baseline's.
    """
    base = comparison.baseline
    # Where means are equal, but for rounding, the baseline comes first: nobody beats it.
    ranked = sorted(
        (round(s.mean, 9), r is not base, r.name)
        for r in comparison.rivals
        for s in [r.summary]
        if s
    )
    if len(ranked) < 2 or base.summary is None:
        return ""
    mean, _, name = ranked[0]
    lead = f"{name} has the lowest mean test error, {mean:.2f} %"
    versus = comparison.versus.get(name)
    if name == base.name:
        return f"{lead}: no rival beats the baseline."
    if versus is None:
        return f"{lead}; not tested, it has no seed in common with {base.name}."
    side = "below" if versus.paired.mean <= 0 else "above"
    own = next(rival.errors for rival in comparison.rivals if rival.name == name)
    shared = versus.paired.n
    all_paired = shared == len(own) == len(base.errors)
    over = "" if all_paired else f" over the {counted(shared, 'seed')} that both have"
    lead += f", {abs(versus.paired.mean):.2f} points {side} {base.name}{over}"
    if versus.p is None and shared >= FEWEST_PAIRS:
        return f"{lead}; not tested, the difference is the same at all {shared} seeds."
    if versus.p is None:
        return f"{lead}; too little to test, over n = {counted(versus.paired.n, 'paired seed')}."
    told = f"p = {probability(versus.p)}".replace("= <", "<")
    if versus.p < CHANCE:
        return f"{lead} ({told})."
    return f"{lead}, which {versus.paired.n} seeds cannot tell from chance ({told})."


def text(comparison: Comparison) -> Group:
    """The tables for a terminal. A name that looks like markup is shown as it is."""
    parts = [grid_text(grid) for grid in grids(comparison)]
    said = verdict(comparison)
    return Group(*parts, *([Text(said)] if said else []))


def grid_text(grid: Grid) -> Group:
    """One table for a terminal, with an empty line below."""
    table = Table(
        caption=Text(grid.note),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for i, header in enumerate(grid.headers):
        table.add_column(header, justify="right" if i else "left", no_wrap=i > 0, overflow="fold")
    for row in grid.rows:
        table.add_row(*map(Text, row))
    # A title of the table itself would be broken where the table ends.
    return Group(Text(grid.title, style="bold"), table, Text())


def markdown(comparison: Comparison) -> str:
    """The tables as GitHub Markdown."""
    parts = [grid_markdown(grid) for grid in grids(comparison)]
    return "\n".join([*parts, verdict(comparison), ""])


def grid_markdown(grid: Grid) -> str:
    """One table as GitHub Markdown."""

    def line(values: list[str]) -> str:
        return "| " + " | ".join(v.replace("|", "\\|") for v in values) + " |"

    rule = "|---|" + "---:|" * (len(grid.headers) - 1)
    lines = [f"**{grid.title}**", "", line(grid.headers), rule, *map(line, grid.rows)]
    notes = grid.note.splitlines()
    mark = "- " if len(notes) > 1 else ""  # else they would run on as one paragraph
    return "\n".join([*lines, "", *(mark + note for note in notes), ""])


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """Every number, one line for each rival; empty where there is none."""
    rows = [row for comparison in comparisons for row in numbers(comparison)]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def to_json(comparisons: Sequence[Comparison]) -> str:
    """Protocol, baseline and every number of each comparison."""
    plain = [
        {
            "protocol": comparison.protocol,
            "places": comparison.places,
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
    return possible(comparison.pooled.interval(rival.summary.mean, rival.summary.n))


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _count(rival: Rival) -> str:
    finished, total = rival.fates[FINISHED], sum(rival.fates.values())
    return str(finished) if finished == total else f"{finished} of {total}"


def _fate(rival: Rival) -> str:
    fallen = [f"{n} {fate}" for fate, n in rival.fates.items() if fate != FINISHED]
    return f"{rival.name}: {', '.join(fallen)}"


def interval(ends: Interval | None) -> str:
    """Both ends of an interval to two places.

    Example:
        >>> interval((0.5, 1.25)), interval(None)
        ('0.50 to 1.25', '-')
    """
    return NOTHING if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"


def probability(p: float | None) -> str:
    """A p-value to three places.

    Example:
        >>> probability(0.0123), probability(1e-6)
        ('0.012', '< 0.001')
    """
    if p is None:
        return NOTHING
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
