"""`srelu report`: tables and the HTML report from records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from ..analysis import comparison, comparison_tables
from ..analysis.comparison import Comparison
from ..records import run_record
from ..util import files
from .terminal import console, examples

EXAMPLES = examples(
    "srelu report",
    "srelu report runs --baseline prelu --out prelu.html",
    "srelu report results --format markdown > results.md",
)
RECORDS = Path("runs")
Baseline = Annotated[
    str | None, typer.Option(help="Rival that the others are compared with.", show_default="relu")
]
PAGE = "report.html"


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of records.")] = RECORDS,
    baseline: Baseline = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write.", show_default=f"FOLDER/{PAGE}")
    ] = None,
    format: Annotated[
        Literal["text", "markdown", "csv", "json"],
        typer.Option(help="Format of the tables; only text also writes the HTML file."),
    ] = "text",
) -> None:
    """Print tables and write the report from the records of finished runs.

    Runs that share a protocol are compared; several protocols in one folder become several
    comparisons on one page.
    """
    found = run_record.find(folder)
    if not found:
        raise ValueError(
            f"there are no records in {folder}: train some with `srelu compare`, or name "
            "another folder"
        )
    comparisons = comparison.compare(found, baseline)
    if format == "text":
        for c in comparisons:
            console.print(comparison_tables.terminal(c))
        write_page(comparisons, out or folder / PAGE)
    elif format == "markdown":
        print("\n".join(map(comparison_tables.markdown, comparisons)), end="")
    else:
        write = comparison_tables.to_csv if format == "csv" else comparison_tables.to_json
        print(write(comparisons), end="")


def write_page(comparisons: Sequence[Comparison], path: Path) -> None:
    """Writes the HTML report and prints its path."""
    from ..report import render

    files.write(path, render(comparisons).encode())
    console.print(Text(f"\nReport: {path}"))
