"""`srelu paper`: the paper's figures, its tables beside ours, and the runs that fill them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..analysis.comparison_tables import TextTable, terminal_table
from ..paper import difference_tables, fit_tables, pair_tables, paper_tables, results_page
from ..paper.results import PaperResults
from ..util import files
from ..util.choices import check_choice
from . import paper_runs
from .paper_runs import ResultsFolder
from .terminal import console, examples

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
FORMULA_FIGURES = {
    "figure1": "The laws of Weber-Fechner and Stevens and the SReLU forms that imitate them.",
    "figure2": "The piecewise-linear family, ReLU to maxout, and SReLU.",
}
RECORD_FIGURES = {
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
        found = PaperResults.committed(results)
        if as_json:
            print(json.dumps(paper_tables.plain_values(name, found), indent=2))
        else:
            _print(paper_tables.make_tables(name, found))

    return command


def _print(made: Iterable[TextTable]) -> None:
    for table in made:
        console.print(terminal_table(table))


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
    found = PaperResults.committed(results)
    for name in paper_tables.NAMES:
        _print(paper_tables.make_tables(name, found))


@app.command(
    "page", help=f"Write {results_page.PAGE}, its figures, and what {results_page.README} quotes."
)
def _page(results: ResultsFolder = None) -> None:
    for path in results_page.write(PaperResults.committed(results), results):
        console.print(Text(f"{path} is written"))


def _formula_figure(name: str) -> Callable[..., None]:
    def command(out: OutFile = Path(f"{name}.png")) -> None:
        _draw(name, out, lambda: None)

    return command


def _record_figure(name: str) -> Callable[..., None]:
    def command(out: OutFile = Path(f"{name}.png"), results: ResultsFolder = None) -> None:
        _draw(name, out, lambda: PaperResults.committed(results))

    return command


def _draw(name: str, out: Path, results: Callable[[], PaperResults | None]) -> None:
    from ..paper.figures.drawing import FORMATS
    from ..paper.figures.figure_list import draw

    kind = out.suffix.removeprefix(".")
    check_choice(f"file type of {out}", kind, FORMATS)
    files.write(out, draw(name, kind, results()))
    console.print(Text(f"{name} is in {out}"))


def _from_records(
    make: Callable[[PaperResults], list[TextTable]], missing: str = ""
) -> Callable[..., None]:
    """Prints tables; where there are none, the error names what is ``missing``."""

    def command(results: ResultsFolder = None) -> None:
        made = make(PaperResults.committed(results))
        if missing and not made:
            raise ValueError(f"{missing} a record yet: `srelu paper run headline`")
        _print(made)

    return command


app.command(
    "ablations",
    help="What the gain is made of: SReLU with one decision changed or reused, ReLU for longer.",
)(_from_records(pair_tables.make_tables))
app.command(
    "fit",
    help="How well the networks fit, and how large their weights and inputs are, from the records.",
)(_from_records(fit_tables.make_tables, "no run has"))
app.command(
    "rows",
    help="Every row of Tables 1, 2, 4 and 5: its command and cost, the paper's value and ours.",
)(_from_records(paper_tables.row_tables))
app.command(
    "differences", help="SReLU against ReLU and PReLU: paired differences, intervals and tests."
)(_from_records(difference_tables.make_tables, "no two rivals have"))
for _make, _commands in (
    (_table, TABLES),
    (_formula_figure, FORMULA_FIGURES),
    (_record_figure, RECORD_FIGURES),
):
    for _name, _help in _commands.items():
        app.command(_name, help=_help)(_make(_name))
app.command("run")(paper_runs.run)
app.command("collect")(paper_runs.collect)
