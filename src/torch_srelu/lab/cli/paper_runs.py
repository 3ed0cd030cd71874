"""`srelu paper run` and `srelu paper collect`: the reproduction's runs, and their records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence, Set
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ..._text import counted
from ..analysis import tables
from ..config.run import Run
from ..data.datasets import dataset
from ..data.locations import locate
from ..engine.local_processes import Event, UnsavedRunsError, train_runs
from ..paper.blocks import BLOCKS, REHEARSAL, contests
from ..paper.contests import Contest, wanted, with_needs
from ..paper.standing import Standing, results_folder
from ..records import archives, run_record
from ..records.run_record import Record, Results
from ..records.run_status import FINISHED
from ..runtime.distributed import choose_device
from .board import QUIET_SECONDS, outcome
from .data_commands import DataFolder, check_data_folder
from .report_command import RECORDS
from .terminal import INTERRUPTED, console, duration, errors, fail, one_line_errors
from .train_commands import Device, RecordsFolder

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
    with one_line_errors():
        if not blocks:
            console.print(_overview())
            return
        chosen = contests(blocks)
        folder = results or results_folder()
        committed = run_record.results(run_record.find(folder))
        known = committed | run_record.results(run_record.find(records_folder))
        if minutes != 0:
            choose_device(device)
            check_data_folder(data)
            _find_data((r for r in wanted(chosen, known) if r.key() not in known), data)
        view = Lines(chosen, known)
        limit = None if minutes is None else 60 * minutes
        events = train_runs(
            lambda known: wanted(chosen, known),
            records_folder,
            data,
            known=committed,
            jobs=jobs,
            seconds=limit,
            device=device,
        )
        try:
            with closing(events):
                for event in events:
                    view.see(event)
        except KeyboardInterrupt:
            errors.print("Stopped: checkpoints are written, the same command goes on from there.")
            raise typer.Exit(INTERRUPTED) from None
        except UnsavedRunsError as error:  # interrupted too
            errors.print(Text(f"Stopped: {error}"), soft_wrap=True)
            raise typer.Exit(INTERRUPTED) from None
        own = run_record.find(records_folder)
        standing = Standing([*run_record.find(folder), *own])
        _show_tables(standing, chosen)
        _tell_committed(
            chosen, standing.results, committed.keys() - run_record.results(own), folder
        )
        _tell_missing(standing, chosen, view.failed)


def _find_data(runs: Iterable[Run], data: Path | None) -> None:
    """Raises an error, before anything is started, if the data of a run are not there."""
    for name in sorted({run.dataset for run in runs} - {"digits"}):  # which are built in
        locate(dataset(name), data)


def _show_tables(standing: Standing, chosen: Sequence[Contest]) -> None:
    """Prints where the contests stand."""
    for contest in chosen:
        result = standing.comparison([contest])
        if result is not None:
            console.print()
            console.print(tables.text(result))


def _tell_committed(
    chosen: Sequence[Contest], results: Results, committed: Set[str], folder: Path
) -> None:
    """Says how many of the numbers nobody has trained here, and how to."""
    runs = wanted(chosen, results)
    if there := sum(run.key() in committed for run in runs):
        words = (
            f"\nFrom the committed records in {folder}, not trained now: {there} of "
            f"{counted(len(runs), 'run')}. To train anyway, name a folder without records, as in "
            "--results nothing"
        )
        console.print(Text(words), soft_wrap=True)


def _tell_missing(standing: Standing, chosen: Sequence[Contest], failed: int) -> None:
    """Says what is left to train; that a run failed ends the command."""
    if failed:
        fail(f"{counted(failed, 'run')} failed, see above; the same command tries again")
    if missing := len(standing.missing(chosen)):
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
    with one_line_errors():
        folder = results or results_folder()
        if REHEARSAL in (blocks or ()):
            raise ValueError(f"{REHEARSAL} counts for no table: there is nothing to collect")
        chosen = contests(blocks)
        found = run_record.find(records_folder)
        if not found:
            raise ValueError(
                f"there are no records in {records_folder}: those in {folder} are collected "
                "already, `srelu paper run` trains the others"
            )
        standing = Standing([*run_record.find(folder), *found])
        counting = {r.run.key() for contest in chosen for r in standing.counted(contest)}
        done = [r for r in found if r.result is not None and r.run.key() in counting]
        collected = archives.collect(done, folder)
        size = sum(path.stat().st_size for path in folder.iterdir())
        added = f"{counted(len(collected.added), 'record')} added"
        known = f"{len(collected.known)} known before"
        console.print(Text(f"{added}, {known}; {folder} has {size / 1e6:.2f} MB."))
        missing = len(standing.missing(chosen))
        if missing:
            where = " ".join(blocks or ["all blocks"])
            console.print(f"{counted(missing, 'run')} of {where} without a result.")


class Lines:
    """Tells of runs side by side in lines: each end, and a sign of life between them.

    Args:
        chosen: The contests under way.
        there: Results that were there before.
    """

    def __init__(self, chosen: Sequence[Contest], there: Results) -> None:
        self.contests, self.results = chosen, dict(there)
        self.shares: dict[str, float] = {}  # of the runs under way
        self.failed = 0
        self._first: dict[str, float] = {}  # where they were when they began here
        self._gained = 0.0  # by those that have ended
        self._began = self._said = time.monotonic()

    def see(self, event: Event | None) -> None:
        """Takes in what happened; None means that nothing did."""
        if event is not None:
            self._take_in(event)
        if time.monotonic() - self._said >= QUIET_SECONDS and self.shares:
            least, most = min(self.shares.values()), max(self.shares.values())
            self._say(f"{len(self.shares)} under way, {least:.0%} to {most:.0%} done")

    def _take_in(self, event: Event) -> None:
        key, name = event.run.key(), f"{event.run.net} {event.run.activation}"
        name += f" seed {event.run.seed}"
        match event.kind:
            case "started":
                self.shares[key] = 0.0
            case "progress":
                self.shares[key] = event.share
                self._first.setdefault(key, event.share)
            case "ended":
                assert event.record is not None
                self._leave(key, 1.0)
                self.results |= run_record.results([event.record])
                self._say(f"{name}: {_outcome(event.record)}")
            case "stopped":
                self._say(f"{name}: stopped at {self._leave(key):.0%}")
            case "dropped":
                self._leave(key)
                self._say(f"{name}: not needed any more, by the results there are now")
            case _:
                self._leave(key)
                self.failed += 1
                self._say(f"{name}: failed, {event.words}")

    def _leave(self, key: str, share: float | None = None) -> float:
        last = self.shares.pop(key, 0.0)
        reached = last if share is None else share
        self._gained += reached - self._first.pop(key, 0.0)
        return reached

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        runs = wanted(self.contests, self.results)
        done = sum(run.key() in self.results for run in runs)
        status = f"{done} of {counted(len(runs), 'run')}"
        under_way = {key: share - self._first.get(key, share) for key, share in self.shares.items()}
        gained = self._gained + sum(under_way.values())
        if gained > 0 and done < len(runs):
            left = len(runs) - done - sum(self.shares.values())
            pace = (self._said - self._began) / gained
            status += f", about {duration(max(0.0, left * pace))} left"
        console.print(Text(f"{line}; {status}"), soft_wrap=True)


def _outcome(record: Record) -> str:
    result = record.result or {}
    error = outcome(record) + (" % test error" if result["status"] == FINISHED else "")
    return f"{error}, {counted(result['epochs'], 'epoch')} in {duration(result['seconds'])}"


def _overview() -> Table:
    """All blocks, each with the names under which its parts run alone."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("block")
    table.add_column("what it trains")
    table.add_column("runs", justify="right")
    for name, block in BLOCKS.items():
        words, parts = Text(block.words), with_needs(block.contests)
        if [part.name for part in parts] != [name]:
            words.append(f"\n{', '.join(part.name for part in parts)}", style="dim")
        table.add_row(Text(name), words, str(len(wanted(block.contests, {}))))
    return table
