"""Every row of Tables 1, 2, 4 and 5 with the command that runs it, its cost, and both values."""

from __future__ import annotations

from ...analysis.comparison_tables import NOTHING, TextTable
from ...config.recipes import LENGTHS
from ..published import TABLES, TITLES, Row
from ..standing import Standing, contests_with
from .error_tables import value

HEADERS = ["row: command, cost", "paper", "ours"]  # the first one wraps in a narrow terminal
NOTE = (
    "Test errors in percent, ours with n seeds. A command runs a whole comparison; its cost is "
    "that of the runs that are missing or, if none is, what they took."
)


def grids(standing: Standing) -> list[TextTable]:
    """All cells of the tables of errors, one a line and length."""
    made = [
        TextTable(
            f"Table {table.number}: {TITLES[condition]}",
            HEADERS,
            [
                _line(row, condition, length, standing)
                for row in table.under(condition)
                for length in dict.fromkeys(c.length for c in contests_with(row.name, condition))
            ],
            "",
        )
        for table in TABLES.values()
        for condition in table.conditions
    ]
    return [*made[:-1], made[-1]._replace(note=NOTE)]


def _line(row: Row, condition: str, length: str, standing: Standing) -> list[str]:
    contests = contests_with(row.name, condition, length)
    cell = standing.cell(row.name, condition, length)
    n = cell.rival.summary.n if cell and cell.rival.summary else 0
    paper = row.errors.get(condition)
    left = cell is None or standing.missing(contests)
    cost = standing.cost(contests) if left else standing.spent(contests)
    names = " ".join(contest.name for contest in contests)
    title = row.title
    if length == "published":
        title += f", {LENGTHS[length][condition]} epochs"
    return [
        f"{title}: `srelu paper run {names}`, {cost}",
        NOTHING if paper is None else f"{paper:.2f}",
        f"{value(cell)}, n = {n}" if cell else "not run",
    ]
