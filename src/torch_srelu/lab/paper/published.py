"""The numbers of the paper's five tables, as printed there: read from published.csv, learned.csv.

Errors are in percent. Names of rows and conditions are those of our own runs; what is known of a
row, and rows that the paper does not have but that help to read it, stand beside its own. In
published.csv a "-" is an error that the paper does not have, under a condition where we run the
row; where nothing stands, the row has no entry.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import NamedTuple

from ..analysis.learned_parameters import LEARNED_NAMES
from ..util.package_files import read_text, read_toml

PACKAGE = "torch_srelu.lab.paper"

NOTES = read_toml(PACKAGE, "notes.toml")  # all words of the tables
TITLES: dict[str, str] = NOTES["titles"]
CIFAR = CIFAR10, CIFAR100 = "cifar10", "cifar100"
IMAGENET = "imagenet"


class PublishedRow(NamedTuple):
    """A row of a table of errors.

    Attributes:
        name: What it is called here.
        title: What the paper calls it.
        parameters: Number of parameters as the paper has it; "" where it gives none.
        errors: Error by condition; None where we run it though the paper has no error.
        note: What a reader should know about it.
    """

    name: str
    title: str
    parameters: str
    errors: dict[str, float | None]
    note: str = ""


class PublishedTable(NamedTuple):
    """A table of errors: number, conditions and rows in the paper's order.

    ``beside`` are rows that the paper does not have and that help to read those that it has.
    """

    number: int
    conditions: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    beside: tuple[PublishedRow, ...] = ()

    def rows_under(self, condition: str) -> list[PublishedRow]:
        """All rows that have an error under a condition, in the paper or here."""
        return [row for row in (*self.rows, *self.beside) if condition in row.errors]


def read_csv(name: str) -> list[dict[str, str]]:
    """The lines of a file of this package, by column."""
    return list(csv.DictReader(read_text(PACKAGE, name).splitlines()))


def _tables() -> dict[str, PublishedTable]:
    rows: dict[tuple[str, str], list[PublishedRow]] = defaultdict(list)
    for line in read_csv("published.csv"):
        texts = {condition: line[condition] for condition in TITLES if line[condition]}
        errors = {c: None if text == "-" else float(text) for c, text in texts.items()}
        row = PublishedRow(line["row"], line["title"], line["parameters"], errors, line["note"])
        rows[line["table"], line["source"]].append(row)
    return {
        f"table{number}": PublishedTable(
            int(number),
            tuple(c for c in TITLES if any(c in row.errors for row in rows[number, "paper"])),
            tuple(rows[number, "paper"]),
            tuple(rows[number, "ours"]),
        )
        for number in dict.fromkeys(number for number, _ in rows)
    }


TABLES = _tables()

# Every error of the paper by row and condition; where Tables 1 and 2 disagree, Table 2 counts.
ERRORS: dict[tuple[str, str], float] = {
    (row.name, condition): error
    for table in TABLES.values()
    for row in table.rows
    for condition, error in row.errors.items()
    if error is not None
}

# Table 3: mean learned parameters by condition, layer and name.
LEARNED: dict[str, dict[str, dict[str, float]]] = {CIFAR10: {}, CIFAR100: {}}
for _line in read_csv("learned.csv"):
    LEARNED[_line["condition"]][_line["layer"]] = {n: float(_line[n]) for n in LEARNED_NAMES}
