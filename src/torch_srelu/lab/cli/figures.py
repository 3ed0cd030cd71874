"""`srelu paper`: the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from .. import files
from ..choices import check_choice
from .terminal import console, examples, one_line_errors

EXAMPLES = examples("srelu paper figure1", "srelu paper figure2 --out family.svg")


def paper(
    what: Annotated[str, typer.Argument(metavar="FIGURE", help="figure1 or figure2.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: .png, .svg or .pdf.", show_default="FIGURE.png"),
    ] = None,
) -> None:
    """Draw a figure of the paper.

    figure1: the laws of Weber-Fechner and Stevens and the SReLU forms that imitate them.

    figure2: the piecewise-linear family, ReLU to maxout, and SReLU.
    """
    from ..paper import FIGURES, FORMATS, render

    with one_line_errors():
        check_choice("figure", what, FIGURES)
        path = out or Path(f"{what}.png")
        kind = path.suffix.removeprefix(".")
        check_choice(f"file type of {path}", kind, FORMATS)
        files.write(path, render(FIGURES[what](), kind))
        console.print(Text(f"{what} is in {path}"))
