"""Progress of a comparison: rivals down, seeds across, how far each run is and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..._text import counted
from ..config.run import Run
from ..engine.scheduling import Event
from ..records.run_record import Record
from ..records.run_status import FINISHED
from .terminal import duration

QUIET_SECONDS = 15  # a log gets a line at least this often


class Board:
    """A table of runs, shown while they are trained.

    Args:
        names: The rival that each run belongs to.
        runs: The runs in the order in which they are trained.
    """

    def __init__(self, names: Sequence[str], runs: Sequence[Run]) -> None:
        self.names = {run.key(): name for name, run in zip(names, runs, strict=True)}
        self.runs = list(runs)
        self.records: dict[str, Record] = {}
        self.shares = {run.key(): 0.0 for run in runs}
        self.now: Event | None = None
        self._began = time.monotonic()
        self._trained = 0.0  # since then, in runs

    def see(self, event: Event) -> None:
        """Shows that a run has come further ("progress") or has a result ("ended")."""
        key = event.run.key()
        if self.now is not None and self.now.run == event.run:
            self._trained += event.share - self.shares[key]
        self.shares[key] = event.share
        if event.record is not None:
            self.records[key] = event.record
        self.now = None if event.record else event

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the pace since the start; None before there is one."""
        if not self._trained:
            return None
        left = len(self.runs) - sum(self.shares.values())
        return left * (time.monotonic() - self._began) / self._trained

    def cell(self, run: Run) -> str:
        """One run in a word: its test error, its status, or how far it is."""
        record = self.records.get(run.key())
        if record is not None and record.result is not None:
            return outcome(record)
        share = self.shares[run.key()]
        return f"{share:.0%}" if share else "."

    def status(self) -> str:
        """How many runs are done, and the time left."""
        words = f"{len(self.records)} of {counted(len(self.runs), 'run')}"
        if len(self.records) == len(self.runs) or self.seconds_left is None:
            return words
        return f"{words}, about {duration(self.seconds_left)} left"

    def __rich__(self) -> RenderableType:
        seeds = sorted({run.seed for run in self.runs})
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column("test error %")
        for seed in seeds:
            table.add_column(f"seed {seed}", justify="right", min_width=8)
        by_place = {(self.names[run.key()], run.seed): run for run in self.runs}
        for name in dict.fromkeys(self.names.values()):
            cells = (by_place.get((name, seed)) for seed in seeds)
            table.add_row(Text(name), *(Text(self.cell(run) if run else "") for run in cells))
        bar = Table.grid(padding=(0, 2))
        done = sum(self.shares.values())
        bar.add_row(ProgressBar(total=len(self.runs), completed=done, width=28), self.status())
        return Group(table, Text(), bar, Text(self.under_way(), style="dim"))

    def under_way(self) -> str:
        """The run that is being trained, in words."""
        if self.now is None:
            return ""
        run, loss = self.now.run, self.now.loss
        done = f"{self.now.epoch} of {counted(run.epochs, 'epoch')} ({self.now.share:.0%})"
        words = f"{self.names[run.key()]}, seed {run.seed}: {done}"
        if self.now.phase == "frozen":
            words += ", frozen"
        return words if loss is None else f"{words}, training loss {loss:.4f}"


def outcome(record: Record) -> str:
    """The result of a run in a word: its test error in percent, or its status."""
    result = record.result or {}
    return f"{100 * result['test_error']:.2f}" if result["status"] == FINISHED else result["status"]


def outcome_in_words(record: Record) -> tuple[str, str]:
    """The result of a run with its unit, and how long it was trained."""
    result = record.result or {}
    unit = " % test error" if result["status"] == FINISHED else ""
    took = f"{counted(result['epochs'], 'epoch')} in {duration(result['seconds'])}"
    return outcome(record) + unit, took


class BoardLog:
    """A board as plain lines: one for each run that ends, and some in between."""

    def __init__(self, board: Board, console: Console) -> None:
        self.board, self.console = board, console
        self._printed = time.monotonic()

    def see(self, event: Event) -> None:
        """Prints the result of a run that has ended, and progress now and then."""
        trained = self.board.now is not None
        self.board.see(event)
        if event.record is not None:
            run, (error, took) = event.run, outcome_in_words(event.record)
            line = f"{self.board.names[run.key()]}, seed {run.seed}: {error}, "
            line += took if trained else "finished before"
        elif time.monotonic() - self._printed >= QUIET_SECONDS:
            line = self.board.under_way()
        else:
            return
        self._printed = time.monotonic()
        self.console.print(Text(f"{line}; {self.board.status()}"), soft_wrap=True)


@contextmanager
def shown(board: Board, console: Console) -> Iterator[Board | BoardLog]:
    """Shows the board while it changes: in place on a terminal, elsewhere as lines of a log."""
    if not console.is_terminal:
        yield BoardLog(board, console)
        return
    with Live(board, console=console, refresh_per_second=4):
        yield board
