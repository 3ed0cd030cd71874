"""The paper's tables of errors, 1, 2, 4 and 5, with ours beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...._text import counted
from ...analysis.comparison_tables import NOTHING, TextTable, format_interval
from ...config.recipes import LENGTHS
from ...records.run_record import Record
from ...records.run_status import DEAD, DIVERGED
from ..contests import OWN
from ..published import IMAGENET, TITLES, Row, Table
from ..standing import Cell, Standing, contests_with
from ..systems import LINEAR, SYSTEMS, is_short
from .cells import entry, epochs, fates_in_words, how_to_run, mean_error, protocol

READING = (
    "Test error in percent at the last epoch; ema: of the averaged weights; sd: over n seeds; "
    "dead: starts that learned nothing, replaced; div.: runs that diverged; -: the paper has no "
    "such number, or we too few runs for it."
)
HEADERS = ["model", "paper", "ours", "sd", "95 % interval", "n", "ema", "dead", "div."]
# What is to be known of a condition.
REMARKS = {
    IMAGENET: "ours are top-1 errors of Imagenette, 10 of ImageNet's 1,000 classes, with 3,925 "
    "test images, a standard error near 0.5 points: directional only, for a task that is not the "
    "paper's; all 1,000 classes, 2.4 million steps a run, take too long for one device"
}


def grids(table: Table, standing: Standing) -> list[TextTable]:
    """One grid for each condition and each length that has records."""
    made = []
    for condition in table.conditions:
        made.append(_grid(table, condition, "short", table.under(condition), standing))
        for length in LENGTHS:
            rows = [r for r in table.rows if contests_with(r.name, condition, length)]
            if length != "short" and any(standing.cell(r.name, condition, length) for r in rows):
                made.append(_grid(table, condition, length, rows, standing))
    return made


def _grid(
    table: Table, condition: str, length: str, rows: list[Row], standing: Standing
) -> TextTable:
    cells = {row.name: _cell(row, condition, length, standing) for row in rows}
    title = f"Table {table.number}: {TITLES[condition]}"
    nin = LENGTHS[length].get(condition.partition("+")[0])
    if nin is not None:
        title += f", NIN after {nin} epochs"
    lines = [_line(row, condition, cells[row.name]) for row in rows]
    notes = [READING, *_not_run(rows, cells, condition, standing)]
    remarks = _together(
        (remark, row.title)
        for row in rows
        for remark in _remarks(row, condition, cells[row.name], standing)
    )
    notes += [f"{', '.join(titles)}: {remark}." for remark, titles in remarks.items()]
    if condition in REMARKS:
        notes.append(f"{TITLES[condition]}: {REMARKS[condition]}.")
    return TextTable(title, HEADERS, lines, "\n".join(notes))


def _cell(row: Row, condition: str, length: str, standing: Standing) -> Cell | None:
    return standing.cell(row.name, condition, OWN if row.name in SYSTEMS else length)


def _line(row: Row, condition: str, cell: Cell | None) -> list[str]:
    paper = f"{row.errors[condition]:.2f}" if condition in row.errors else NOTHING
    if cell is None:
        return [row.title, paper, "not run", *[NOTHING] * (len(HEADERS) - 3)]
    summary, fates = cell.rival.summary, cell.rival.status_counts
    return [
        row.title,
        paper,
        value(cell),
        f"{summary.std:.2f}" if summary and summary.std is not None else NOTHING,
        format_interval(summary and summary.interval),
        str(summary.n if summary else 0),
        f"{cell.averaged.mean:.2f}" if cell.averaged else NOTHING,
        str(fates[DEAD]),
        str(fates[DIVERGED]),
    ]


def value(cell: Cell) -> str:
    """The mean of our errors; whoever reads it is told if the runs are short."""
    return mean_error(cell.rival) + (" short" if is_short(cell.run) else "")


def _remarks(row: Row, condition: str, cell: Cell | None, standing: Standing) -> Iterator[str]:
    """What a reader should know of a row and of our number for it."""
    if row.note:
        yield row.note
    if cell and row.name in SYSTEMS:
        run = SYSTEMS[row.name](condition, 1)
        length = f"{epochs(run)} epochs"
        short = f"ours is short, {length}, and not to be ranked"
        yield short if is_short(run) else f"ours after {length}"
        if row.name not in LINEAR:
            yield from _beside_linear(cell, condition, standing)
    if cell and row.name == "nin+lrelu":
        plainly = " without flips" if cell.run.augmentation == "flips" else ""
        slope = cell.run.options["slope"]
        yield f"ours has the slope {slope:g}, chosen on validation data{plainly}"
    if cell:
        yield from _photographs(cell)


def _beside_linear(cell: Cell, condition: str, standing: Standing) -> Iterator[str]:
    """Whether a system does better than a linear classifier on what it sees."""
    plain = condition.partition("+")[0]
    for linear in (standing.cell(name, plain, OWN) for name in LINEAR):
        if linear and linear.run.preprocessing == cell.run.preprocessing:
            ours, least = cell.rival.summary, linear.rival.summary
            better = ours is not None and least is not None and ours.mean < least.mean
            words = "better" if better else "NOT better"
            yield f"{words} than a linear classifier on the same input"


def _photographs(cell: Cell) -> Iterator[str]:
    """What the results of photographs have beside their error."""
    results = [r.result for r in cell.rival.finished if r.result and "test_top5_error" in r.result]
    if not results:
        return
    top5 = 100 * np.mean([result["test_top5_error"] for result in results])
    yield f"top-5 error {top5:.2f} %"
    timed = [r for r in cell.rival.finished if r.result and "images_an_epoch" in r.result]
    if timed:
        beside = max(e.get("beside", 1) for record in timed for e in record.environments)
        runs = f"{counted(beside, 'run')} side by side" if beside > 1 else "alone on its device"
        rate = np.median([_rate(record) for record in timed])
        yield f"{rate:.0f} images a second in training, {runs}"
    skipped = max(result.get("skipped_images", 0) for result in results)
    if skipped:
        yield f"{counted(skipped, 'image')} could not be decoded and were left out"


def _rate(record: Record) -> float:
    """Images a second, by the median epoch."""
    assert record.result is not None
    seconds = float(np.median([metrics.seconds for metrics in record.metrics]))
    return record.result["images_an_epoch"] / seconds


def _not_run(
    rows: list[Row], cells: dict[str, Cell | None], condition: str, standing: Standing
) -> Iterator[str]:
    """For the cells without a record: the commands that fill them, and what they cost."""
    commands = _together(
        (how_to_run(row.name, condition, standing), row.title)
        for row in rows
        if cells[row.name] is None
    )
    for how, titles in commands.items():
        yield f"Not run: {', '.join(titles)}: {how}."


def _together(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What is said of several, once."""
    said: dict[str, list[str]] = {}
    for words, title in pairs:
        said.setdefault(words, []).append(title)
    return said


def entries(table: Table, standing: Standing) -> Iterator[dict[str, Any]]:
    """One plain value for each cell and each length that has records."""
    for condition in table.conditions:
        for row in table.under(condition):
            known = (OWN,) if row.name in SYSTEMS else LENGTHS
            found = {n: standing.cell(row.name, condition, n) for n in known}
            lengths = [n for n in known if found[n]] or list(known)[:1]
            for length in lengths:
                cell = found[length]
                notes = list(_remarks(row, condition, cell, standing))
                if cell is None:
                    notes.insert(0, f"not run: {how_to_run(row.name, condition, standing)}")
                else:
                    notes += _fate_notes(cell)
                if condition in REMARKS:
                    notes.append(REMARKS[condition])
                yield entry(
                    row.name,
                    condition,
                    row.errors.get(condition),
                    cell.rival.summary if cell else None,
                    protocol(row.name, condition, length),
                    "; ".join(notes),
                )


def _fate_notes(cell: Cell) -> list[str]:
    notes = fates_in_words(cell.rival)
    if cell.averaged:
        notes.append(f"averaged weights {cell.averaged.mean:.2f}")
    return notes
