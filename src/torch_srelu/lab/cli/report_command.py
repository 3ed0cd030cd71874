"""`srelu report`: tables and the HTML report from records."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..analysis import comparison, comparison_tables
from ..analysis.comparison import Comparison
from ..records import run_record
from ..util import files
from .terminal import console, examples, one_line_errors

EXAMPLES = examples(
    "srelu report",
    "srelu report runs --baseline prelu --out prelu.html",
    "srelu report results --format markdown > results.md",
)
RECORDS = Path("runs")
PAGE = "report.html"


class TableFormat(StrEnum):
    """Output format of the comparison_tables."""

    text = "text"
    markdown = "markdown"
    csv = "csv"
    json = "json"


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of records.")] = RECORDS,
    baseline: Annotated[
        str | None,
        typer.Option(help="Rival that the others are compared with.", show_default="relu"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write.", show_default=f"FOLDER/{PAGE}")
    ] = None,
    format: Annotated[
        TableFormat, typer.Option(help="Format of the tables; only text also writes the HTML file.")
    ] = TableFormat.text,
) -> None:
    """Print tables and write the report from the records of finished runs.

    Runs that share a protocol are compared; several protocols in one folder become several
    comparisons on one page.
    """
    with one_line_errors():
        found = run_record.find(folder)
        if not found:
            raise ValueError(
                f"there are no records in {folder}: train some with `srelu compare`, or name "
                "another folder"
            )
        comparisons = comparison.compare(found, baseline)
        if format is not TableFormat.text:
            print(format_tables(comparisons, format), end="")
            return
        for c in comparisons:
            console.print(comparison_tables.terminal(c))
        write_page(comparisons, out or folder / PAGE)


def format_tables(comparisons: Sequence[Comparison], format: TableFormat) -> str:
    """The tables as one of the formats for files."""
    if format is TableFormat.markdown:
        return "\n".join(map(comparison_tables.markdown, comparisons))
    write = comparison_tables.to_csv if format is TableFormat.csv else comparison_tables.to_json
    return write(comparisons)


def write_page(comparisons: Sequence[Comparison], path: Path) -> None:
    """Writes the HTML report and prints its path."""
    from ..report import render

    files.write(path, render(comparisons).encode())
    console.print(Text(f"\nReport: {path}"))
