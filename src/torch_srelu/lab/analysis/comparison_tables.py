"""Tables of a comparison of runs, as text, Markdown, CSV and JSON.

The formats for people show the same `text_tables`, those for programs the same `numbers`.
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
from .comparison import Comparison, Rival, places
from .sample_statistics import FEWEST_PAIRS, Interval, PairedDifference, clip_percent

NOTHING = "-"
SIGNIFICANCE = 0.05  # `conclusion` calls p-values below it a difference


class TextTable(NamedTuple):
    """A table of strings: title, column titles, rows, and a note below it."""

    title: str
    headers: list[str]
    rows: list[list[str]]
    note: str


def text_tables(comparison: Comparison) -> list[TextTable]:
    """The errors of all rivals and, if there is anything to compare, their differences."""
    return [errors(comparison), *differences(comparison)]


def errors(comparison: Comparison) -> TextTable:
    """Each rival's mean test error with its standard deviation and interval."""
    rows = []
    for rival in comparison.rivals:
        s, n, total = rival.summary, len(rival.finished), len(rival.records)
        cells = format_number(s and s.mean), format_number(s and s.std)
        counts = str(n) if n == total else f"{n} of {total}"
        seconds = format_number(rival.seconds, ".1f")
        rows.append([rival.name, *cells, format_interval(s and s.interval), counts, seconds])
    note = "Error at the last epoch, never the best; n runs that differ in the seed alone."
    excluded = [_excluded(r) for r in comparison.rivals if len(r.finished) < len(r.records)]
    if excluded:
        note += f" Not in the means: {'; '.join(excluded)}."
    note += f" Trained on {'; '.join(places(comparison.records))}."
    loads = {e.get("beside", 1) for record in comparison.records for e in record.environments}
    if len(loads) > 1:
        note += " Seconds do not compare: not all runs shared the device with as many others."
    headers = ["activation", "test error %", "std", "95 % interval", "n", "seconds a run"]
    return TextTable(comparison.title, headers, rows, note)


def differences(comparison: Comparison) -> list[TextTable]:
    """Each rival's test error minus the baseline's: the paired test, then the other intervals.

    Two tables, because three intervals beside the test are wider than a terminal. Empty if there
    is nothing to compare.
    """
    found = comparison.differences
    if not found:
        return []
    title = f"Test error minus that of {comparison.baseline.name}"
    tests = [
        [name, *paired_numbers(difference.paired, difference.p)]
        for name, difference in found.items()
    ]
    headers = ["activation", "points", "95 % interval", "n", "p (Holm)"]
    note = (
        "Points of percent. Paired over n seeds that both finished, Student's 95 % interval from "
        f"n = {FEWEST_PAIRS} on; p is two-sided, corrected by Holm over this table."
    )
    others = [[n, format_interval(d.pooled), format_interval(d.images)] for n, d in found.items()]
    others_note = "95 % intervals of the same differences. Images: bootstrap over the test images."
    if comparison.pooled:
        degrees, seeds = comparison.pooled.degrees, comparison.baseline.errors.keys()
        others_note += f" Pooled: from the spread within all rivals, degrees of freedom {degrees}"
        unpaired = any(r.errors.keys() != seeds for r in comparison.rivals if r.name in found)
        others_note += "; unpaired, over all seeds of either." if unpaired else "."
    intervals = f"{title}: other intervals", ["activation", "pooled", "images"]
    return [TextTable(title, headers, tests, note), TextTable(*intervals, others, others_note)]


def paired_numbers(paired: PairedDifference, p: float | None) -> list[str]:
    """A paired difference with its interval, n and corrected p-value."""
    interval = format_interval(paired.interval)
    return [f"{paired.mean:+.2f}", interval, str(paired.n), format_p_value(p)]


def conclusion(comparison: Comparison) -> str:
    """The result in a sentence that claims no more than the test supports; empty without one.

    Names the lowest mean error and says whether it differs from the baseline's.
    """
    base = comparison.baseline
    # Of means that are equal, but for rounding, the baseline's comes first.
    ranked = sorted(
        (round(rival.summary.mean, 9), rival is not base, rival.name, rival.errors)
        for rival in comparison.rivals
        if rival.summary
    )
    if len(ranked) < 2 or base.summary is None:
        return ""
    mean, _, name, own = ranked[0]
    lead = f"{name} has the lowest mean test error, {mean:.2f} %"
    if name == base.name:
        return f"{lead}: no rival beats the baseline."
    found = comparison.differences.get(name)
    if found is None:
        return f"{lead}; not tested, it has no seed in common with {base.name}."
    points, n = found.paired.mean, found.paired.n
    lead += f", {abs(points):.2f} points {'below' if points <= 0 else 'above'} {base.name}"
    if not n == len(own) == len(base.errors):
        lead += f" over the {counted(n, 'seed')} that both have"
    if found.p is None and n >= FEWEST_PAIRS:
        return f"{lead}; not tested, the difference is the same at all {n} seeds."
    if found.p is None:
        return f"{lead}; too little to test, over n = {counted(n, 'paired seed')}."
    p = f"p = {format_p_value(found.p)}".replace("= <", "<")
    if found.p < SIGNIFICANCE:
        return f"{lead} ({p})."
    return f"{lead}, which {n} seeds cannot tell from chance ({p})."


def terminal(comparison: Comparison) -> Group:
    """The tables for a terminal. A name that looks like markup is shown as it is."""
    sentence = conclusion(comparison)
    parts = map(terminal_table, text_tables(comparison))
    return Group(*parts, *([Text(sentence)] if sentence else []))


def terminal_table(table: TextTable) -> Group:
    """One table for a terminal, with an empty line below."""
    drawn = Table(
        caption=Text(table.note),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for i, header in enumerate(table.headers):
        drawn.add_column(header, justify="right" if i else "left", no_wrap=i > 0, overflow="fold")
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    # A title of the table itself would be broken where the table ends.
    return Group(Text(table.title, style="bold"), drawn, Text())


def markdown(comparison: Comparison) -> str:
    """The tables as GitHub Markdown."""
    return "\n".join([*map(markdown_table, text_tables(comparison)), conclusion(comparison), ""])


def markdown_table(table: TextTable) -> str:
    """One table as GitHub Markdown."""

    def line(values: list[str]) -> str:
        return "| " + " | ".join(v.replace("|", "\\|") for v in values) + " |"

    rule = "|---|" + "---:|" * (len(table.headers) - 1)
    lines = [f"**{table.title}**", "", line(table.headers), rule, *map(line, table.rows)]
    notes = table.note.splitlines()
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
            "places": places(comparison.records),
            "baseline": comparison.baseline.name,
            "rivals": numbers(comparison),
        }
        for comparison in comparisons
    ]
    return json.dumps(plain, indent=2) + "\n"


def numbers(comparison: Comparison) -> list[dict[str, Any]]:
    """One flat row of numbers for each rival; differences are in points of percent."""
    return [_numbers(comparison, rival) for rival in comparison.rivals]


def _numbers(comparison: Comparison, rival: Rival) -> dict[str, Any]:
    protocol, pooled, summary = comparison.protocol, comparison.pooled, rival.summary
    found = comparison.differences.get(rival.name)
    pooled_mean = pooled and summary and pooled.interval(summary.mean, summary.n)
    return {
        "dataset": protocol["dataset"],
        "net": protocol["net"],
        "epochs": protocol["epochs"],
        "activation": rival.name,
        "n": rival.status_counts[FINISHED],
        "dead": rival.status_counts[DEAD],
        "diverged": rival.status_counts[DIVERGED],
        "unfinished": rival.status_counts[UNFINISHED],
        "error_mean": summary and summary.mean,
        "error_std": summary and summary.std,
        **_ends("error", summary and summary.interval),
        **_ends("error_pooled", clip_percent(pooled_mean)),
        "pooled_std": pooled and pooled.std,
        "pooled_degrees": pooled and pooled.degrees,
        "seconds": rival.seconds,
        "baseline": comparison.baseline.name,
        "pairs": found and found.paired.n,
        "difference": found and found.paired.mean,
        "difference_std": found and found.paired.std,
        **_ends("difference", found and found.paired.interval),
        **_ends("difference_pooled", found and found.pooled),
        **_ends("difference_images", found and found.images),
        "p": found and found.paired.p,
        "p_holm": found and found.p,
    }


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _excluded(rival: Rival) -> str:
    """How many runs are not in the means, by status."""
    counts = [f"{n} {status}" for status, n in rival.status_counts.items() if status != FINISHED]
    return f"{rival.name}: {', '.join(counts)}"


def format_number(value: float | None, spec: str = ".2f") -> str:
    """A number in this format, or a dash.

    Example:
        >>> format_number(0.125), format_number(0.125, "+.1f"), format_number(None)
        ('0.12', '+0.1', '-')
    """
    return NOTHING if value is None else format(value, spec)


def format_interval(ends: Interval | None) -> str:
    """Both ends of an interval to two places.

    Example:
        >>> format_interval((0.5, 1.25)), format_interval(None)
        ('0.50 to 1.25', '-')
    """
    return NOTHING if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"


def format_p_value(p: float | None) -> str:
    """A p-value to three places.

    Example:
        >>> format_p_value(0.0123), format_p_value(1e-6)
        ('0.012', '< 0.001')
    """
    return "< 0.001" if p is not None and p < 0.001 else format_number(p, ".3f")
