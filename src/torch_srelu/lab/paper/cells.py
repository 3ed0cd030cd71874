"""What all cells of our tables share: as a plain value, and how one that is empty is filled."""

from __future__ import annotations

from typing import Any

from ..recipes import LENGTHS
from ..statistics import Summary
from .published import TABLES
from .standing import Standing, contests_with


def entry(
    row: str, condition: str, paper: float, ours: Summary | None, protocol: str, note: str
) -> dict[str, Any]:
    """A cell as a plain value, the same for every table."""
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


def how_to_run(row: str, condition: str, standing: Standing) -> str:
    """The command that runs a cell and its cost, or why there is none."""
    fitting = contests_with(row, condition)
    if not fitting:
        quoted = any(r.quoted for t in TABLES.values() for r in t.rows if r.name == row)
        return "quoted by the paper from other work" if quoted else "no block of runs has it"
    return f"`srelu paper run {fitting[0].name}`, {standing.cost(fitting[:1])}"


def protocol(condition: str, length: str) -> str:
    """The name of the protocol at a length."""
    return f"faithful, {LENGTHS[length][condition.partition('+')[0]]} epochs"
