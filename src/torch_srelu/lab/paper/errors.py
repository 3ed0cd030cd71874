"""The paper's tables of errors, 1, 2, 4 and 5, with ours beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..fates import DEAD, DIVERGED
from ..recipes import LENGTHS
from ..tables import NOTHING, Grid, interval
from .cells import entry, how_to_run, protocol
from .published import TITLES, Row, Table
from .rows import ROWS
from .standing import Cell, Standing

READING = "Test error in percent at the last epoch; ema: of the averaged weights; sd: over n seeds."
HEADERS = ["model", "paper", "ours", "sd", "95 % interval", "n", "ema", "dead", "div."]


def grids(table: Table, standing: Standing) -> list[Grid]:
    """One grid for each condition and each length that has records."""
    made = []
    for condition in table.conditions:
        lengths = [
            length
            for length in LENGTHS
            if length == "short"
            or any(standing.cell(row.name, condition, length) for row in table.rows)
        ]
        made += [_grid(table, condition, length, standing) for length in lengths]
    return made


def _grid(table: Table, condition: str, length: str, standing: Standing) -> Grid:
    rows = [row for row in table.rows if condition in row.errors]
    cells = {row.name: standing.cell(row.name, condition, length) for row in rows}
    title = f"Table {table.number}: {TITLES[condition]}"
    epochs = LENGTHS[length].get(condition.partition("+")[0])
    if epochs is not None:
        title += f", ours after {epochs} epochs"
    lines = [_line(row, condition, cells[row.name]) for row in rows]
    notes = [READING, *_not_run(rows, cells, condition, standing)]
    remarks = _together((row.note, row.title) for row in rows if row.note)
    notes += [f"{', '.join(titles)}: {remark}." for remark, titles in remarks.items()]
    return Grid(title, HEADERS, lines, "\n".join(notes))


def _line(row: Row, condition: str, cell: Cell | None) -> list[str]:
    paper = f"{row.errors[condition]:.2f}"
    if cell is None:
        return [row.title, paper, "not run", *[NOTHING] * 6]
    summary, fates = cell.rival.summary, cell.rival.fates
    return [
        row.title,
        paper,
        f"{summary.mean:.2f}" if summary else NOTHING,
        f"{summary.std:.2f}" if summary and summary.std is not None else NOTHING,
        interval(summary and summary.interval),
        str(summary.n if summary else 0),
        f"{cell.averaged.mean:.2f}" if cell.averaged else NOTHING,
        str(fates[DEAD]),
        str(fates[DIVERGED]),
    ]


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
        for row in table.rows:
            if condition not in row.errors:
                continue
            found = {n: standing.cell(row.name, condition, n) for n in LENGTHS}
            lengths = [n for n in LENGTHS if found[n]] or ["short"]
            for length in lengths:
                cell, notes = found[length], [row.note] if row.note else []
                if cell is None:
                    notes.insert(0, f"not run: {how_to_run(row.name, condition, standing)}")
                else:
                    notes += _fate_notes(cell)
                yield entry(
                    row.name,
                    condition,
                    row.errors[condition],
                    cell.rival.summary if cell else None,
                    protocol(condition, length) if row.name in ROWS else "",
                    "; ".join(notes),
                )


def _fate_notes(cell: Cell) -> list[str]:
    notes = [f"{cell.rival.fates[f]} {f}" for f in (DEAD, DIVERGED) if cell.rival.fates[f]]
    if cell.averaged:
        notes.append(f"averaged weights {cell.averaged.mean:.2f}")
    return notes
