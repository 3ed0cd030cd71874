"""Progress of runs and the time left: as lines of a log, or as a table on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from ..._text import counted
from ..config.run import Run
from ..engine.scheduling import Event, RunPlan
from ..records import run_record
from ..records.run_record import Results
from ..records.run_status import FINISHED
from .terminal import duration

QUIET_SECONDS = 15  # a log gets a line at least this often


class RunProgress:
    """How far runs are, from the events of an engine.

    Args:
        plan: The runs wanted, given the results there are, by key.
        known: Results that were there before.
    """

    def __init__(self, plan: RunPlan, known: Results) -> None:
        self.plan, self.results = plan, dict(known)
        self.running: dict[str, Event] = {}  # the last event of each run under way
        self.failed = 0
        self._began = time.monotonic()
        self._gained = 0.0  # trained since then, in runs

    def update(self, event: Event) -> None:
        """Takes in what happened to a run."""
        key, running = event.run.key(), dict(self.running)
        last = running.pop(key, None)
        if last and last.kind == "progress" and event.kind in ("progress", "ended"):
            self._gained += event.share - last.share
        if event.kind in ("started", "progress"):
            running[key] = event
        self.running = running  # replaced and not changed: another thread may draw it
        if event.record is not None:
            self.results |= run_record.results([event.record])
        self.failed += event.kind == "failed"

    def status(self) -> str:
        """How many runs are done, and the time left, estimated from the pace since the start."""
        runs = self.plan(self.results)
        done = sum(run.key() in self.results for run in runs)
        words = f"{done} of {counted(len(runs), 'run')}"
        if self._gained <= 0 or done == len(runs):
            return words
        left = len(runs) - done - sum(event.share for event in self.running.values())
        pace = (time.monotonic() - self._began) / self._gained
        return f"{words}, about {duration(max(0.0, left * pace))} left"

    def name(self, run: Run) -> str:
        """The run in the lines of a log."""
        return f"{run.net} {run.activation} seed {run.seed}"

    def under_way(self) -> str:
        """The runs that are being trained, in words."""
        shares = [event.share for event in self.running.values()]
        if not shares:
            return ""
        return f"{len(shares)} under way, {min(shares):.0%} to {max(shares):.0%} done"


class Board(RunProgress):
    """A table of runs that are trained one by one: rivals down, seeds across.

    Args:
        names: The rival that each run belongs to.
        runs: The runs in the order in which they are trained.
    """

    def __init__(self, names: Sequence[str], runs: Sequence[Run]) -> None:
        super().__init__(lambda _: list(runs), {})
        self.names = {run.key(): name for name, run in zip(names, runs, strict=True)}
        self.runs = runs

    def cell(self, run: Run) -> str:
        """One run in a word: its test error, its status, or how far it is."""
        if run.key() in self.results:
            return outcome(self.results[run.key()])
        event = self.running.get(run.key())
        return f"{event.share:.0%}" if event and event.share else "."

    def __rich__(self) -> RenderableType:
        seeds = sorted({run.seed for run in self.runs})
        columns = [Column(f"seed {seed}", justify="right", min_width=8) for seed in seeds]
        table = Table(
            "test error %", *columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
        )
        by_place = {(self.names[run.key()], run.seed): run for run in self.runs}
        for name in dict.fromkeys(self.names.values()):
            cells = (by_place.get((name, seed)) for seed in seeds)
            table.add_row(Text(name), *(Text(self.cell(run) if run else "") for run in cells))
        bar = Table.grid(padding=(0, 2))
        done = len(self.results) + sum(event.share for event in self.running.values())
        bar.add_row(ProgressBar(total=len(self.runs), completed=done, width=28), self.status())
        return Group(table, Text(), bar, Text(self.under_way(), style="dim"))

    def name(self, run: Run) -> str:
        return f"{self.names[run.key()]}, seed {run.seed}"

    def under_way(self) -> str:
        for event in self.running.values():
            run, loss = event.run, event.loss
            done = f"{event.epoch} of {counted(run.epochs, 'epoch')} ({event.share:.0%})"
            words = f"{self.name(run)}: {done}"
            if event.phase == "frozen":
                words += ", frozen"
            return words if loss is None else f"{words}, training loss {loss:.4f}"
        return ""


def outcome(result: Mapping[str, Any]) -> str:
    """The result of a run in a word: its test error in percent, or its status."""
    return f"{100 * result['test_error']:.2f}" if result["status"] == FINISHED else result["status"]


class ProgressLines:
    """Prints the progress of runs in lines: each end, and a sign of life between them."""

    def __init__(self, progress: RunProgress, console: Console) -> None:
        self.progress, self.console = progress, console
        self._printed = time.monotonic()

    def update(self, event: Event | None) -> None:
        """Takes in what happened; None means that nothing did."""
        line = ""
        if event is not None:
            last = self.progress.running.get(event.run.key())
            self.progress.update(event)
            if event.kind not in ("started", "progress"):
                line = f"{self.progress.name(event.run)}: {_end(event, last)}"
        if not line and time.monotonic() - self._printed >= QUIET_SECONDS:
            line = self.progress.under_way()
        if line:
            self._printed = time.monotonic()
            self.console.print(Text(f"{line}; {self.progress.status()}"), soft_wrap=True)


def _end(event: Event, last: Event | None) -> str:
    """How a run has ended, in words, given its event before."""
    match event.kind:
        case "ended":
            result = (event.record and event.record.result) or {}
            unit = " % test error" if result["status"] == FINISHED else ""
            took = f"{counted(result['epochs'], 'epoch')} in {duration(result['seconds'])}"
            return f"{outcome(result)}{unit}, {took if last else 'finished before'}"
        case "stopped":
            return f"stopped at {last.share if last else 0:.0%}"
        case "dropped":
            return "not needed any more, by the results there are now"
    return f"failed, {event.words}"


@contextmanager
def shown(board: Board, console: Console) -> Iterator[Callable[[Event], None]]:
    """Shows the board, in place on a terminal, elsewhere as lines; gives what takes its events."""
    if not console.is_terminal:
        yield ProgressLines(board, console).update
        return
    with Live(board, console=console, refresh_per_second=4):
        yield board.update
