"""`srelu paper`: the paper's figures, and its tables beside ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from .. import files
from ..choices import check_choice
from . import blocks
from .terminal import console, examples, one_line_errors

app = typer.Typer(
    help="The paper's figures, its tables beside ours, and the runs that fill them.",
    no_args_is_help=True,
    epilog=examples(
        "srelu paper figure2 --out family.svg",
        "srelu paper run headline --jobs 6 --minutes 9",
        "srelu paper collect headline",
    ),
)
app.command("run")(blocks.run)
app.command("collect")(blocks.collect)

FIGURES = {
    "figure1": "The laws of Weber-Fechner and Stevens and the SReLU forms that imitate them.",
    "figure2": "The piecewise-linear family, ReLU to maxout, and SReLU.",
}


def _figure(name: str) -> Callable[..., None]:
    def command(
        out: Annotated[
            Path, typer.Option(help="File to write: .png, .svg or .pdf.", show_default=True)
        ] = Path(f"{name}.png"),
    ) -> None:
        with one_line_errors():
            from ..paper.figures import DRAWN, FORMATS, render

            kind = out.suffix.removeprefix(".")
            check_choice(f"file type of {out}", kind, FORMATS)
            files.write(out, render(DRAWN[name](), kind))
            console.print(Text(f"{name} is in {out}"))

    return command


for _name, _words in FIGURES.items():
    app.command(_name, help=_words)(_figure(_name))
