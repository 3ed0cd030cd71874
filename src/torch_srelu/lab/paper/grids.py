"""The paper's tables with our numbers beside them, as grids of text and as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...module import NAMES
from ..activations import Site, activation
from ..fates import DEAD, DIVERGED
from ..learned import layers
from ..nets import Conv, Pool, plan
from ..recipes import LENGTHS
from ..seeds import generator
from ..statistics import Summary
from ..tables import NOTHING, Grid, interval
from .published import LEARNED, LEARNED_NAMES, TABLES, Row, Table
from .rows import ROWS
from .standing import Cell, Standing, contests_with

TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar10+flips": "CIFAR-10 with flips",
    "cifar100+flips": "CIFAR-100 with flips",
    "mnist": "MNIST",
    "imagenet": "ImageNet",
}
READING = "Test error in percent at the last epoch; ema: of the averaged weights; sd: over n seeds."
HEADERS = ["model", "paper", "ours", "sd", "95 % interval", "n", "ema", "dead", "div."]


def table(name: str, standing: Standing) -> list[Grid]:
    """A table of the paper, "table1" to "table5", with our numbers beside its own."""
    if name == "table3":
        return learned_grids(standing)
    counts = [parameters_grid(name)] if name in ("table2", "table4") else []
    return [*error_grids(name, standing), *counts]


def error_grids(name: str, standing: Standing) -> list[Grid]:
    """A table of errors: one grid for each condition and each length that has records.

    Args:
        name: "table1", "table2", "table4" or "table5".
        standing: The records.
    """
    table = TABLES[name]
    grids = []
    for condition in table.conditions:
        lengths = [
            length
            for length in LENGTHS
            if length == "short"
            or any(standing.cell(row.name, condition, length) for row in table.rows)
        ]
        grids += [_error_grid(table, condition, length, standing) for length in lengths]
    return grids


def _error_grid(table: Table, condition: str, length: str, standing: Standing) -> Grid:
    rows = [row for row in table.rows if condition in row.errors]
    cells = {row.name: standing.cell(row.name, condition, length) for row in rows}
    title = f"Table {table.number}: {TITLES[condition]}"
    epochs = LENGTHS[length].get(condition.partition("+")[0])
    if epochs is not None:
        title += f", ours after {epochs} epochs"
    lines = [_error_line(row, condition, cells[row.name]) for row in rows]
    notes = [READING, *_not_run(rows, cells, condition, standing)]
    remarks = _together((row.note, row.title) for row in rows if row.note)
    notes += [f"{', '.join(titles)}: {remark}." for remark, titles in remarks.items()]
    return Grid(title, HEADERS, lines, "\n".join(notes))


def _error_line(row: Row, condition: str, cell: Cell | None) -> list[str]:
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


def how_to_run(row: str, condition: str, standing: Standing) -> str:
    """The command that runs a cell and its cost, or why there is none."""
    fitting = contests_with(row, condition)
    if not fitting:
        quoted = any(r.quoted for t in TABLES.values() for r in t.rows if r.name == row)
        return "quoted by the paper from other work" if quoted else "no block of runs has it"
    return f"`srelu paper run {fitting[0].name}`, {standing.cost(fitting[:1])}"


def parameters_grid(name: str) -> Grid:
    """The numbers of parameters of a table's networks, counted, beside the paper's."""
    table = TABLES[name]
    rows = []
    for row in table.rows:
        for condition in table.conditions:
            if row.name in ROWS and "+" not in condition and condition in row.errors:
                weights, extra = count_parameters(row.name, condition)
                counted = f"{weights:,}" + (f" + {extra:,}" if extra else "")
                rows.append([row.title, TITLES[condition], row.parameters or NOTHING, counted])
    note = "Counted in the networks that are trained here: weights and biases + activations."
    headers = ["model", "data", "paper", "ours"]
    return Grid(f"Table {table.number}: numbers of parameters", headers, rows, note)


def count_parameters(row: str, condition: str) -> tuple[int, int]:
    """Weights and biases of a row's network, and the parameters of its activations.

    Example:
        >>> count_parameters("nin+srelu", "cifar10")
        (966986, 5672)
    """
    run = ROWS[row](condition, 1)
    spec, unit = plan(run.net), activation(run.activation)
    weights, extra, channels, size = 0, 0, spec.channels, spec.size
    for layer in spec.layers:
        if isinstance(layer, Pool):
            size = (size - 2) // 2 + 1
        elif isinstance(layer, Conv):
            weights += layer.channels * (channels * layer.kernel**2 + 1)
            site = Site(layer.channels, size, size, generator(1, "activation"))
            extra += sum(p.numel() for p in unit.build(site, **run.options).parameters())
            channels = layer.channels
    return weights, extra


def learned_grids(standing: Standing) -> list[Grid]:
    """Table 3: mean learned parameters by layer beside the paper's, thresholds and slopes."""
    grids = []
    for condition, paper in LEARNED.items():
        for length in LENGTHS:
            cell = standing.cell("nin+srelu", condition, length)
            if cell is None and length != "short":
                continue
            for names in (LEARNED_NAMES[:2], LEARNED_NAMES[2:]):
                grids.append(_learned_grid(condition, length, names, paper, cell, standing))
    return grids


def _learned_grid(
    condition: str,
    length: str,
    names: tuple[str, ...],
    paper: dict[str, tuple[float, ...]],
    cell: Cell | None,
    standing: Standing,
) -> Grid:
    ours = layers(cell.rival) if cell else {}
    headers = ["layer", *(h for name in names for h in (f"{name} paper", "ours", "spread"))]
    rows = []
    for layer, values in paper.items():
        line = [layer]
        for name in names:
            line.append(f"{values[LEARNED_NAMES.index(name)]:.2f}")
            learned = ours.get(layer)
            place = NAMES.index(name)
            line += (
                [f"{learned.mean[place]:.2f}", f"{learned.std[place]:.2f}"]
                if learned
                else ["not run", NOTHING]
            )
        rows.append(line)
    epochs = LENGTHS[length][condition]
    title = f"Table 3: {TITLES[condition]}, {' and '.join(names)}, ours after {epochs} epochs"
    note = "Means over the channels of a layer"
    if cell is None:
        how = how_to_run("nin+srelu", condition, standing)
        return Grid(title, headers, rows, f"{note}. Not run: {how}.")
    note += f" and n = {len(cell.rival.finished)} seeds; spread: standard deviation over these."
    return Grid(title, headers, rows, note)


def entries(name: str, standing: Standing) -> list[dict[str, Any]]:
    """A table as plain values, one for each cell and length."""
    if name == "table3":
        return list(_learned_entries(standing))
    return list(_error_entries(TABLES[name], standing))


def _error_entries(table: Table, standing: Standing) -> Iterator[dict[str, Any]]:
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
                yield _entry(
                    row.name,
                    condition,
                    row.errors[condition],
                    cell.rival.summary if cell else None,
                    _protocol(condition, length) if row.name in ROWS else "",
                    "; ".join(notes),
                )


def _learned_entries(standing: Standing) -> Iterator[dict[str, Any]]:
    for condition, paper in LEARNED.items():
        for length in LENGTHS:
            cell = standing.cell("nin+srelu", condition, length)
            if cell is None and length != "short":
                continue
            ours = layers(cell.rival) if cell else {}
            for layer, values in paper.items():
                for name, value in zip(LEARNED_NAMES, values, strict=True):
                    learned, place = ours.get(layer), NAMES.index(name)
                    note = (
                        f"std over seeds; over channels {learned.std[place]:.4g}"
                        if learned
                        else f"not run: {how_to_run('nin+srelu', condition, standing)}"
                    )
                    yield _entry(
                        f"nin+srelu:{layer}:{name}",
                        condition,
                        value,
                        learned.seeds[place] if learned else None,
                        _protocol(condition, length),
                        note,
                    )


def _entry(
    row: str, condition: str, paper: float, ours: Summary | None, protocol: str, note: str
) -> dict[str, Any]:
    numbers = ours and {
        "mean": ours.mean,
        "std": ours.std,
        "n": ours.n,
        "ci95": list(ours.interval) if ours.interval else None,
    }
    return {
        "row": row,
        "condition": condition,
        "paper": paper,
        "ours": numbers,
        "protocol": protocol,
        "note": note,
    }


def _fate_notes(cell: Cell) -> list[str]:
    notes = [f"{cell.rival.fates[f]} {f}" for f in (DEAD, DIVERGED) if cell.rival.fates[f]]
    if cell.averaged:
        notes.append(f"averaged weights {cell.averaged.mean:.2f}")
    return notes


def _protocol(condition: str, length: str) -> str:
    return f"faithful, {LENGTHS[length][condition.partition('+')[0]]} epochs"
