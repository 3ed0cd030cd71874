"""`srelu paper`: the paper's figures, its tables beside ours, and the runs that fill them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..analysis import comparison_tables
from ..paper import results_page
from ..paper.standing import Standing
from ..paper.tables import ablations, differences, fit, paper_tables, row_list
from ..util import files
from ..util.choices import check_choice
from . import paper_runs
from .paper_runs import ResultsFolder
from .terminal import console, examples, one_line_errors

app = typer.Typer(
    help="The paper's tables and figures beside ours, and the runs that fill them. "
    "Without a command: all tables.",
    invoke_without_command=True,
    epilog=examples(
        "srelu paper",
        "srelu paper rows",
        "srelu paper table2",
        "srelu paper table2 --json",
        "srelu paper overview --out overview.svg",
        "srelu paper differences",
        "srelu paper ablations",
        "srelu paper fit",
        "srelu paper figure4 --out curves.svg",
        "srelu paper run headline --jobs 6 --minutes 9",
        "srelu paper collect headline",
    ),
)

TABLES = {
    "table1": "SReLU shared by channels and channel-wise, CIFAR-10.",
    "table2": "CIFAR-10 and CIFAR-100, with and without flips.",
    "table3": "What SReLU learned, layer by layer.",
    "table4": "MNIST.",
    "table5": "GoogLeNet: the paper on ImageNet, ours on ten of its classes.",
}
DRAWN_FIGURES = {
    "figure1": "The laws of Weber-Fechner and Stevens and the SReLU forms that imitate them.",
    "figure2": "The piecewise-linear family, ReLU to maxout, and SReLU.",
}
RECORDED_FIGURES = {
    "overview": "All in one picture: errors beside the paper's, and what the gain is made of.",
    "figure3": "How large the inputs of each layer's activation are in GoogLeNet, from records.",
    "figure4": "How training converges on CIFAR-10 and CIFAR-100, from the committed records.",
    "functions": "The functions that SReLU learned, layer by layer, from the committed records.",
}
OutFile = Annotated[Path, typer.Option(help="File to write: .png, .svg or .pdf.")]


def _table(name: str) -> Callable[..., None]:
    def command(
        results: ResultsFolder = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print plain values.")] = False,
    ) -> None:
        with one_line_errors():
            standing = Standing.committed(results)
            if as_json:
                print(json.dumps(paper_tables.entries(name, standing), indent=2))
            else:
                _print(paper_tables.table(name, standing))

    return command


def _print(made: Iterable[comparison_tables.TextTable]) -> None:
    for grid in made:
        console.print(comparison_tables.terminal_table(grid))


@app.callback()
def _without_a_command(context: typer.Context, results: ResultsFolder = None) -> None:
    command = context.invoked_subcommand
    if command is None:
        _tables(results)
        console.print(Text("More: `srelu paper rows`, `srelu paper --help`."))
    elif results is not None:
        raise typer.BadParameter(f"name it after the command: srelu paper {command} --results ...")


@app.command("tables")
def _tables(results: ResultsFolder = None) -> None:
    """Tables 1 to 5, one after the other: a number or what would fill it in every cell."""
    with one_line_errors():
        standing = Standing.committed(results)
        for name in paper_tables.NAMES:
            _print(paper_tables.table(name, standing))


@app.command(
    "page", help=f"Write {results_page.PAGE}, its figures, and what {results_page.README} quotes."
)
def _page(results: ResultsFolder = None) -> None:
    with one_line_errors():
        for path in results_page.write(Standing.committed(results), results):
            console.print(Text(f"{path} is written"))


def _drawn_figure(name: str) -> Callable[..., None]:
    def command(out: OutFile = Path(f"{name}.png")) -> None:
        _draw(name, out)

    return command


def _recorded_figure(name: str) -> Callable[..., None]:
    def command(out: OutFile = Path(f"{name}.png"), results: ResultsFolder = None) -> None:
        _draw(name, out, results)

    return command


def _draw(name: str, out: Path, results: Path | None = None) -> None:
    with one_line_errors():
        from ..paper.figures.figure_list import DRAWN, FORMATS, FROM_RECORDS, render

        kind = out.suffix.removeprefix(".")
        check_choice(f"file type of {out}", kind, FORMATS)
        figure = DRAWN[name]() if name in DRAWN else FROM_RECORDS[name](Standing.committed(results))
        files.write(out, render(figure, kind))
        console.print(Text(f"{name} is in {out}"))


@app.command("ablations")
def _ablations(results: ResultsFolder = None) -> None:
    """What the gain is made of: SReLU with one decision changed or reused, ReLU for longer."""
    with one_line_errors():
        _print(ablations.grids(Standing.committed(results)))


@app.command("fit")
def _fit(results: ResultsFolder = None) -> None:
    """How well the networks fit, and how large their weights and inputs are, from the records."""
    with one_line_errors():
        made = fit.grids(Standing.committed(results))
        if not made:
            raise ValueError("no run has a record yet: `srelu paper run headline`")
        _print(made)


@app.command("rows")
def _rows(results: ResultsFolder = None) -> None:
    """Every row of Tables 1, 2, 4 and 5: its command and cost, the paper's value and ours."""
    with one_line_errors():
        _print(row_list.grids(Standing.committed(results)))


@app.command("differences")
def _differences(results: ResultsFolder = None) -> None:
    """SReLU against ReLU and PReLU: paired differences, intervals and tests."""
    with one_line_errors():
        made = differences.grids(Standing.committed(results))
        if not made:
            raise ValueError("no two rivals have a record yet: `srelu paper run headline`")
        _print(made)


for _name, _words in TABLES.items():
    app.command(_name, help=_words)(_table(_name))
for _name, _words in DRAWN_FIGURES.items():
    app.command(_name, help=_words)(_drawn_figure(_name))
for _name, _words in RECORDED_FIGURES.items():
    app.command(_name, help=_words)(_recorded_figure(_name))
app.command("run")(paper_runs.run)
app.command("collect")(paper_runs.collect)
