"""`srelu data`: list the datasets, and download one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich import box, progress
from rich.table import Table
from rich.text import Text

from ..data import download, locations
from ..data.datasets import DATASETS, dataset
from .terminal import console, examples

app = typer.Typer(
    help="List the data sets and where they are, or get one.",
    epilog=examples("srelu data", "srelu data get mnist", "srelu data get cifar10 --data here"),
    invoke_without_command=True,
)
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", metavar="FOLDER", help="Folder of the data sets; also $SRELU_DATA."),
]


def check_data_folder(data: Path | None) -> None:
    """Raises ValueError if ``data`` is a folder that does not exist."""
    if data is not None and not data.exists():
        raise ValueError(
            f"--data {data}: no such folder; name the one that the data sets lie in, not a data set"
        )


@app.callback()
def show(context: typer.Context, data: DataFolder = None) -> None:
    if context.invoked_subcommand:
        context.obj = data
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("name", "images", "classes", "where"):
        table.add_column(title, overflow="fold")
    for entry in DATASETS.values():
        if entry.kind == "digits":
            where = Text("part of scikit-learn")
        elif found := locations.find(entry, data):
            where = Text(str(found))
        else:
            got = f"srelu data get {entry.name}"
            hint = got if entry.sources else f"expected as {entry.folders[0]}"
            where = Text(f"missing: {hint}", style="yellow")
        shape = " x ".join(map(str, entry.shape))
        table.add_row(entry.name, shape, str(entry.classes), where)
    console.print(table)
    looked = ", then ".join(map(str, locations.data_folders(data)))
    console.print(Text(f"Looked in {looked} (--data, ${locations.VARIABLE}, the cache)."))


@app.command()
def get(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(help=f"One of {', '.join(n for n, d in DATASETS.items() if d.sources)}."),
    ],
    data: DataFolder = None,
) -> None:
    """Download a data set from its official source.

    An interrupted download is resumed; checksums are verified.
    """
    bars = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
        console=console,
    )
    tasks: dict[str, progress.TaskID] = {}
    with ExitStack() as shown:

        def advance(file: str, have: int, total: int | None) -> None:
            if not tasks:
                shown.enter_context(bars)  # earlier, it would leave an empty line
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=have, total=total)

        place = download.get(dataset(name), data or context.obj, advance)
    console.print(Text(f"{name} is in {place}"))
