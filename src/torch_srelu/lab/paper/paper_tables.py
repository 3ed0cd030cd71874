"""The paper's tables by name, with our numbers beside its own: 1, 2, 4 and 5 are of errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..._text import counted
from ..analysis.comparison_tables import NOTHING, TextTable, format_interval, format_number
from ..config.recipes import LENGTHS
from ..records.run_status import DEAD, DIVERGED
from . import learned_tables, parameter_counts
from .experiments import OWN, experiments_with
from .published import NOTES, TABLES, TITLES, PublishedRow, PublishedTable
from .results import Entry, PaperResults, epochs_in_words, plain_entry
from .row_recipes import LINEAR, SYSTEMS, is_short

NAMES = ("table1", "table2", "table3", "table4", "table5")
HEADERS = ["model", "paper", "ours", "sd", "95 % interval", "n", "ema", "dead", "div."]
ROW_HEADERS = ["row: command, cost", "paper", "ours"]  # the first wraps in a narrow terminal


def make_tables(name: str, results: PaperResults) -> list[TextTable]:
    """A table of the paper for people, in parts."""
    if name == "table3":
        return learned_tables.make_tables(results)
    counts = [parameter_counts.make_table(TABLES[name])] if name in NOTES["parameters"] else []
    return [*_error_tables(TABLES[name], results), *counts]


def plain_values(name: str, results: PaperResults) -> list[dict[str, Any]]:
    """A table of the paper as plain values, one for each entry at each length with records."""
    if name == "table3":
        return list(learned_tables.plain_values(results))
    return list(_plain_errors(TABLES[name], results))


def row_tables(results: PaperResults) -> list[TextTable]:
    """All entries of the tables of errors, one a line and length: command, cost, both values."""
    made = [
        TextTable(
            f"Table {table.number}: {TITLES[condition]}",
            ROW_HEADERS,
            [
                _listed(row, condition, length, results)
                for row in table.rows_under(condition)
                for length in dict.fromkeys(e.length for e in experiments_with(row.name, condition))
            ],
            "",
        )
        for table in TABLES.values()
        for condition in table.conditions
    ]
    return [*made[:-1], made[-1]._replace(note=NOTES["rows"])]


def _listed(row: PublishedRow, condition: str, length: str, results: PaperResults) -> list[str]:
    experiments = experiments_with(row.name, condition, length)
    entry = results.entry(row.name, condition, length)
    left = entry is None or results.missing(experiments)
    cost = results.cost(experiments) if left else results.time_taken(experiments)
    names = " ".join(experiment.name for experiment in experiments)
    longer = f", {LENGTHS[length][condition]} epochs" if length == "published" else ""
    return [
        f"{row.title}{longer}: `srelu paper run {names}`, {cost}",
        format_number(row.errors[condition]),
        f"{_ours(entry)}, n = {len(entry.errors)}" if entry else "not run",
    ]


def _error_tables(table: PublishedTable, results: PaperResults) -> Iterator[TextTable]:
    """One table for each condition and each length that has records."""
    for condition in table.conditions:
        yield _error_table(table, condition, "short", table.rows_under(condition), results)
        for length in LENGTHS:
            rows = [r for r in table.rows if experiments_with(r.name, condition, length)]
            if length != "short" and any(results.entry(r.name, condition, length) for r in rows):
                yield _error_table(table, condition, length, rows, results)


def _error_table(
    table: PublishedTable,
    condition: str,
    length: str,
    rows: list[PublishedRow],
    results: PaperResults,
) -> TextTable:
    found = [(row, results.entry(row.name, condition, _length(row, length))) for row in rows]
    title = f"Table {table.number}: {TITLES[condition]}"
    nin = LENGTHS[length].get(condition.partition("+")[0])
    if nin is not None:
        title += f", NIN after {nin} epochs"
    empty = _by_words(
        (results.how_to_run(row.name, condition), row.title) for row, entry in found if not entry
    )
    remarks = _by_words(
        (remark, row.title)
        for row, entry in found
        for remark in _remarks(row, condition, entry, results)
    )
    notes = [NOTES["errors"]]
    notes += [f"Not run: {', '.join(titles)}: {how}." for how, titles in empty.items()]
    notes += [f"{', '.join(titles)}: {remark}." for remark, titles in remarks.items()]
    if condition in NOTES["conditions"]:
        notes.append(f"{TITLES[condition]}: {NOTES['conditions'][condition]}.")
    lines = [_line(row, condition, entry) for row, entry in found]
    return TextTable(title, HEADERS, lines, "\n".join(notes))


def _length(row: PublishedRow, length: str) -> str:
    return OWN if row.name in SYSTEMS else length


def _by_words(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Titles by what the notes say of them, so that each note is printed once."""
    titles: dict[str, list[str]] = {}
    for words, title in pairs:
        titles.setdefault(words, []).append(title)
    return titles


def _line(row: PublishedRow, condition: str, entry: Entry | None) -> list[str]:
    line = [row.title, format_number(row.errors[condition])]
    if entry is None:
        return [*line, "not run", *[NOTHING] * (len(HEADERS) - 3)]
    span = format_interval(entry.summary and entry.summary.interval)
    return [
        *line,
        _ours(entry),
        entry.std_of_errors,
        span,
        str(len(entry.errors)),
        entry.averaged_error,
        str(entry.status_counts[DEAD]),
        str(entry.status_counts[DIVERGED]),
    ]


def _ours(entry: Entry) -> str:
    """The mean of our errors; and that the runs are short, if they are."""
    return entry.mean_error + (" short" if is_short(entry.run) else "")


def _remarks(
    row: PublishedRow, condition: str, entry: Entry | None, results: PaperResults
) -> Iterator[str]:
    """What a reader should know of a row and of our number for it."""
    if row.note:
        yield row.note
    if entry is None:
        return
    if row.name in SYSTEMS:
        run = SYSTEMS[row.name](condition, 1)
        length = f"{epochs_in_words(run)} epochs"
        short = f"ours is short, {length}, and not to be ranked"
        yield short if is_short(run) else f"ours after {length}"
        if row.name not in LINEAR:
            yield from _beside_linear(entry, condition, results)
    if row.name == "nin+lrelu":
        plainly = " without flips" if entry.run.augmentation == "flips" else ""
        slope = entry.run.options["slope"]
        yield f"ours has the slope {slope:g}, chosen on validation data{plainly}"
    yield from _photographs(entry)


def _beside_linear(entry: Entry, condition: str, results: PaperResults) -> Iterator[str]:
    """Whether a system does better than a linear classifier on what it sees."""
    plainly = condition.partition("+")[0]
    for linear in (results.entry(name, plainly, OWN) for name in LINEAR):
        if linear and linear.run.preprocessing == entry.run.preprocessing:
            ours, least = entry.summary, linear.summary
            better = ours is not None and least is not None and ours.mean < least.mean
            words = "better" if better else "NOT better"
            yield f"{words} than a linear classifier on the same input"


def _photographs(entry: Entry) -> Iterator[str]:
    """What the results of photographs have beside their error."""
    results = [r.result for r in entry.finished if r.result and "test_top5_error" in r.result]
    if not results:
        return
    top5 = 100 * np.mean([result["test_top5_error"] for result in results])
    yield f"top-5 error {top5:.2f} %"
    timed = [r for r in entry.finished if r.result and "images_an_epoch" in r.result]
    if timed:
        beside = max(e.get("beside", 1) for r in timed for e in r.environments)
        runs = f"{counted(beside, 'run')} side by side" if beside > 1 else "alone on its device"
        seconds = [np.median([metrics.seconds for metrics in r.metrics]) for r in timed]  # an epoch
        images = [r.result["images_an_epoch"] for r in timed if r.result]
        rate = np.median(np.divide(images, seconds))
        yield f"{rate:.0f} images a second in training, {runs}"
    skipped = max(result.get("skipped_images", 0) for result in results)
    if skipped:
        yield f"{counted(skipped, 'image')} could not be decoded and were left out"


def _plain_errors(table: PublishedTable, results: PaperResults) -> Iterator[dict[str, Any]]:
    for condition in table.conditions:
        for row in table.rows_under(condition):
            lengths = dict.fromkeys(_length(row, length) for length in LENGTHS)
            found = {n: results.entry(row.name, condition, n) for n in lengths}
            for length in [n for n in found if found[n]] or list(found)[:1]:
                entry = found[length]
                notes = list(_remarks(row, condition, entry, results))
                if entry is None:
                    how = results.how_to_run(row.name, condition)
                    notes.insert(0, f"not run: {how}")
                else:
                    notes += entry.number_of(DEAD, DIVERGED)
                    if entry.averaged:
                        notes.append(f"averaged weights {entry.averaged_error}")
                if condition in NOTES["conditions"]:
                    notes.append(NOTES["conditions"][condition])
                summary, paper = entry and entry.summary, row.errors[condition]
                yield plain_entry(row.name, condition, length, paper, summary, "; ".join(notes))
