"""Many runs at once: the order in which they are started and stopped, on any engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import Protocol

from ..config.run import Run
from ..records import run_record
from ..records.run_record import Record, Results
from ..training.callbacks import Progress

RunPlan = Callable[[Results], list[Run]]  # the runs wanted, given the results there are


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    Attributes:
        run: The run.
        kind: "started", "progress", "ended" (it has a result), "stopped" (it resumes next time),
            "dropped" (stopped, and the plan does not want it any more) or "failed".
        share: How much of its training is done, in [0, 1].
        epoch: Epochs done.
        loss: Training loss of the last of them.
        phase: "frozen", "thawed" or "plain"; of progress only.
        record: Of a run that has ended.
        words: Of a run that failed: the last lines of its log, and where the log is.
    """

    run: Run
    kind: str
    share: float = 0.0
    epoch: int = 0
    loss: float | None = None
    phase: str = ""
    record: Record | None = None
    words: str = ""


def progress_event(progress: Progress) -> Event:
    """The event that tells how far the training of a run is."""
    loss = progress.metrics.train_loss if progress.metrics else None
    return Event(progress.run, "progress", progress.share, progress.epoch, loss, progress.phase)


class UnsavedRunsError(RuntimeError):
    """Runs were stopped and could not write their checkpoints."""


class Engine(Protocol):
    """Where runs are trained: all that `schedule` needs of it.

    Attributes:
        jobs: How many runs it trains at a time.
        running: The keys of those that it trains now.
    """

    jobs: int

    @property
    def running(self) -> Collection[str]: ...

    def start(self, run: Run) -> None:
        """Begins to train ``run``, or resumes it, without waiting for it."""

    def stop(self, key: str) -> None:
        """Asks a run to write its checkpoint and end; "stopped" follows. May be called again."""

    def wait(self, seconds: float) -> Event | None:
        """The next event, "progress" or one after which the run is not running; None if none comes.

        Args:
            seconds: How long to wait for it.
        """

    def close(self) -> None:
        """Stops all runs and waits for them; raises UnsavedRunsError if one was not saved."""


def schedule(
    plan: RunPlan, engine: Engine, results: Results, seconds: float | None = None
) -> Generator[Event | None]:
    """Trains what ``plan`` asks for, and yields what happens; None if nothing did for a second.

    After every result the plan is asked again: a run that it does not want any more is stopped. A
    run that begins with the weights of another one waits for its result.

    Args:
        plan: The runs wanted, given the results there are, by key.
        engine: Where they are trained; it is closed at the end.
        results: The results there are: these runs are not trained.
        seconds: When to stop all runs; None for never.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    results, failed = dict(results), set[str]()
    try:
        while True:
            late = time.monotonic() >= deadline
            runs = [run for run in plan(results) if run.key() not in results.keys() | failed]
            needed = {run.key() for run in runs}
            for key in engine.running:
                if late or key not in needed:
                    engine.stop(key)
            for run in runs:
                if run.key() in engine.running or (run.start and run.start not in results):
                    continue
                if late or len(engine.running) >= engine.jobs:
                    break
                engine.start(run)
                yield Event(run, "started")
            if not engine.running:
                return
            event = engine.wait(min(1.0, max(0.05, deadline - time.monotonic())))
            if event is not None and event.record is not None:
                results |= run_record.results([event.record])
            elif event is not None and event.kind == "failed":
                failed.add(event.run.key())
            elif event is not None and event.kind == "stopped" and event.run.key() not in needed:
                event = Event(event.run, "dropped")
            yield event
    finally:
        engine.close()
