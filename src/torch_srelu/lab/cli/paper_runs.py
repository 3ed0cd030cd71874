"""`srelu paper run` and `srelu paper collect`: the reproduction's runs, and their records."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Column, Table
from rich.text import Text

from ..._text import counted
from ..analysis.comparison_tables import terminal as comparison_text
from ..data.datasets import dataset
from ..data.locations import locate
from ..engine.local_processes import UnsavedRunsError, train_runs
from ..paper.experiments import (
    BLOCKS,
    REHEARSAL,
    required_runs,
    select_experiments,
    with_dependencies,
)
from ..paper.results import PaperResults, results_folder
from ..records import archives, run_record
from ..runtime.distributed import choose_device
from .compare_train_commands import Device, RecordsFolder
from .data_commands import DataFolder, check_data_folder
from .progress_board import ProgressLines, RunProgress
from .report_command import RECORDS
from .terminal import INTERRUPTED, console, errors, fail

Blocks = Annotated[
    list[str] | None,
    typer.Argument(metavar="BLOCK...", help="Blocks, or parts of them; without any, lists all."),
]
ResultsFolder = Annotated[
    Path | None,
    typer.Option(
        "--results",
        metavar="FOLDER",
        help="Records that came with the clone.",
        show_default="results",
    ),
]


def run(
    blocks: Blocks = None,
    records_folder: RecordsFolder = RECORDS,
    results: ResultsFolder = None,
    data: DataFolder = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many runs at a time, on one device.")] = 1,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long; the same command goes on.")
    ] = None,
    device: Device = None,
) -> None:
    """Train the runs of the reproduction, block by block.

    Every run has a process of its own. What has a record, here or among the committed ones, is not
    trained again (--results nothing: the committed ones do not count), and what was stopped goes on
    where it was: give the same command. A seed at which one rival is dead from the start is
    replaced by the next one for all of them.
    """
    if not blocks:
        console.print(_overview())
        return
    experiments = select_experiments(blocks)
    plan = partial(required_runs, experiments)
    folder = results or results_folder()
    committed = run_record.results(run_record.find(folder))
    known = committed | run_record.results(run_record.find(records_folder))
    if minutes != 0:
        choose_device(device)
        check_data_folder(data)
        missing = (r for r in plan(known) if r.key() not in known)
        for name in sorted({run.dataset for run in missing} - {"digits"}):  # built in
            locate(dataset(name), data)  # an error now, before anything is started
    progress = RunProgress(plan, known)
    lines = ProgressLines(progress, console)
    seconds = None if minutes is None else 60 * minutes
    events = train_runs(
        plan, records_folder, data, known=committed, jobs=jobs, seconds=seconds, device=device
    )
    try:
        with closing(events):
            for event in events:
                lines.update(event)
    except (KeyboardInterrupt, UnsavedRunsError) as error:  # the second is interrupted too
        saved = "checkpoints are written, the same command goes on from there."
        errors.print(Text(f"Stopped: {str(error) or saved}"))
        raise typer.Exit(INTERRUPTED) from None
    own = run_record.find(records_folder)
    found = PaperResults([*run_record.find(folder), *own])
    for experiment in experiments:
        if (comparison := found.comparison([experiment])) is not None:
            console.print()
            console.print(comparison_text(comparison))
    runs, foreign = plan(found.by_key), committed.keys() - run_record.results(own)
    if there := sum(run.key() in foreign for run in runs):
        words = (
            f"\nFrom the committed records in {folder}, not trained now: {there} of "
            f"{counted(len(runs), 'run')}. To train anyway, name a folder without records, as "
            "in --results nothing"
        )
        console.print(Text(words), soft_wrap=True)
    if progress.failed:
        fail(f"{counted(progress.failed, 'run')} failed, see above; the same command tries again")
    if missing := len(found.missing(experiments)):
        console.print(f"\n{counted(missing, 'run')} left: the same command goes on from here.")


def collect(
    blocks: Annotated[
        list[str] | None, typer.Argument(metavar="BLOCK...", show_default="all blocks")
    ] = None,
    records_folder: RecordsFolder = RECORDS,
    results: ResultsFolder = None,
) -> None:
    """Pack the records of finished runs into the results that are committed.

    A record keeps its run, environment, metrics, predictions and what was learned at the end. Runs
    that have no result yet, and those that count for no block, stay where they are.
    """
    folder = results or results_folder()
    if REHEARSAL in (blocks or ()):
        raise ValueError(f"{REHEARSAL} counts for no table: there is nothing to collect")
    experiments = select_experiments(blocks)
    own = run_record.find(records_folder)
    if not own:
        raise ValueError(
            f"there are no records in {records_folder}: those in {folder} are collected "
            "already, `srelu paper run` trains the others"
        )
    found = PaperResults([*run_record.find(folder), *own])
    counting = {record.run.key() for record in found.records(experiments)}
    done = [r for r in own if r.result is not None and r.run.key() in counting]
    added, known = archives.collect(done, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    words = f"{counted(len(added), 'record')} added, {len(known)} known before"
    console.print(Text(f"{words}; {folder} has {size / 1e6:.2f} MB."))
    if missing := len(found.missing(experiments)):
        where = " ".join(blocks or ["all blocks"])
        console.print(f"{counted(missing, 'run')} of {where} without a result.")


def _overview() -> Table:
    """All blocks, each with the names under which its experiments run alone."""
    columns = ("block", "what it trains", Column("runs", justify="right"))
    table = Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, block in BLOCKS.items():
        words, experiments = Text(block.words), with_dependencies(block.experiments)
        if [e.name for e in experiments] != [name]:
            words.append(f"\n{', '.join(e.name for e in experiments)}", style="dim")
        table.add_row(Text(name), words, str(len(required_runs(block.experiments, {}))))
    return table
