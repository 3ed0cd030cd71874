"""The command `srelu` and its subcommands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from torch_srelu import __version__

from . import bench_command, compare_train_commands, data_commands, paper_commands, report_command
from .terminal import one_line_errors


class _OneLineErrors(TyperGroup):
    """Commands that tell a user's mistakes in one line."""

    def invoke(self, ctx: Any) -> Any:
        with one_line_errors():
            return super().invoke(ctx)


app = typer.Typer(
    name="srelu",
    cls=_OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="SReLU's laboratory: trains and compares activation functions on real data.",
    epilog="Begin with `srelu compare`: four activations, three seeds, two or three minutes.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"torch-srelu {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("compare", epilog=compare_train_commands.COMPARE_EXAMPLES)(
    compare_train_commands.compare
)
app.command("train", epilog=compare_train_commands.TRAIN_EXAMPLES)(compare_train_commands.train)
app.command("report", epilog=report_command.EXAMPLES)(report_command.report)
app.command("bench", epilog=bench_command.EXAMPLES)(bench_command.bench)
app.add_typer(paper_commands.app, name="paper")
app.add_typer(data_commands.app, name="data")
