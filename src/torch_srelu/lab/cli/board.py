"""A comparison while it runs: rivals down, seeds across, how far it is, how long it takes yet."""

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
from ..records.run_record import Record
from ..records.run_status import FINISHED
from ..training.callbacks import Progress
from .terminal import duration

QUIET_SECONDS = 15  # a log file gets a sign of life this often


class Board:
    """What is known about the runs so far.

    Args:
        names: The rival that each run belongs to.
        runs: The runs in the order in which they are trained.
    """

    def __init__(self, names: Sequence[str], runs: Sequence[Run]) -> None:
        self.names = {run.key(): name for name, run in zip(names, runs, strict=True)}
        self.runs = list(runs)
        self.records: dict[str, Record] = {}
        self.shares = {run.key(): 0.0 for run in runs}
        self.now: Progress | None = None
        self._began = time.monotonic()
        self._gained = 0.0  # runs' worth of training done since then

    def see(self, progress: Progress) -> None:
        """Takes in where the run under way stands."""
        key = progress.run.key()
        if self.now is not None and self.now.run == progress.run:
            self._gained += progress.share - self.shares[key]
        self.shares[key] = progress.share
        self.now = progress

    def close(self, record: Record) -> None:
        """Takes in the record of a run that is finished."""
        key = record.run.key()
        if self.now is not None and self.now.run == record.run:
            self._gained += 1 - self.shares[key]
        self.shares[key] = 1.0
        self.records[key] = record
        self.now = None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the pace since the start; None before there is one."""
        if not self._gained:
            return None
        left = len(self.runs) - sum(self.shares.values())
        return left * (time.monotonic() - self._began) / self._gained

    def cell(self, run: Run) -> str:
        """One run in a word: its test error, its fate, or how far it is."""
        record = self.records.get(run.key())
        if record is not None and record.result is not None:
            return outcome(record)
        share = self.shares[run.key()]
        return f"{share:.0%}" if share else "."

    def status(self) -> str:
        """What is done, and how long it takes yet."""
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
        run, metrics = self.now.run, self.now.metrics
        done = f"{self.now.epoch} of {counted(run.epochs, 'epoch')} ({self.now.share:.0%})"
        words = f"{self.names[run.key()]}, seed {run.seed}: {done}"
        if self.now.phase == "frozen":
            words += ", frozen"
        if metrics is None:
            return words
        return f"{words}, training loss {metrics.train_loss:.4f}"


def outcome(record: Record) -> str:
    """The result of a run in a word: its test error in percent, or its fate."""
    result = record.result or {}
    return f"{100 * result['test_error']:.2f}" if result["status"] == FINISHED else result["status"]


class Log:
    """A board as plain lines: one for each run that ends, and a sign of life between them."""

    def __init__(self, board: Board, console: Console) -> None:
        self.board, self.console = board, console
        self._said = time.monotonic()

    def see(self, progress: Progress) -> None:
        """Takes in where the run under way stands."""
        self.board.see(progress)
        if time.monotonic() - self._said >= QUIET_SECONDS:
            self._say(f"{self.board.under_way()}; {self.board.status()}")

    def close(self, record: Record) -> None:
        """Takes in and prints the record of a run that is finished."""
        found = self.board.now is None
        self.board.close(record)
        run, result = record.run, record.result or {}
        error = outcome(record) + (" % test error" if result["status"] == FINISHED else "")
        name = self.board.names[run.key()]
        took = f"{counted(result['epochs'], 'epoch')} in {duration(result['seconds'])}"
        how = "finished before" if found else took
        self._say(f"{name}, seed {run.seed}: {error}, {how}; {self.board.status()}")

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        self.console.print(Text(line), soft_wrap=True)


@contextmanager
def shown(board: Board, console: Console) -> Iterator[Board | Log]:
    """Shows the board while it changes: in place on a terminal, as lines of a log elsewhere."""
    if not console.is_terminal:
        yield Log(board, console)
        return
    with Live(board, console=console, refresh_per_second=4):
        yield board
