"""What happens between the steps and epochs of a training: checkpoints in time, and callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..config.run import Run
from ..records import checkpoints, run_record
from ..records.history import Metrics
from ..records.run_record import Record
from .trainer import Trainer

_SHOWN_EVERY = 0.5  # seconds between two calls of on_step


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        run: Which run.
        folder: Its record.
        epoch: Epochs done.
        share: How much of the training is done, in [0, 1].
        seconds_left: How long the rest will take at the pace so far; None before there is one.
        phase: "frozen", "thawed" or "plain".
        metrics: The last epoch, if there was one.
    """

    run: Run
    folder: Path
    epoch: int
    share: float
    seconds_left: float | None
    phase: str
    metrics: Metrics | None


Callback = Callable[[Progress], None]


class Stopped(Exception):
    """The run was told to stop; its checkpoint is where it goes on."""


class Watch:
    """Checkpoints a session in time, tells how far it is, and stops it if told."""

    def __init__(
        self,
        session: Trainer,
        record: Record,
        on_epoch: Callback | None,
        on_step: Callback | None,
        checkpoint_seconds: float,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.session, self.record = session, record
        self.on_epoch, self.on_step, self.stop = on_epoch, on_step, stop
        self.checkpoint_seconds = checkpoint_seconds
        self.began = self.saved = self.shown = time.monotonic()
        self.first = self._done()

    def step(self) -> None:
        now = time.monotonic()
        # What the processes have added up in an unfinished epoch differs from one to the other: a
        # team stops between epochs only.
        if self.session.team.world == 1 and now - self.saved >= self.checkpoint_seconds:
            self.session.settle()
            self.save()
        if self.on_step and self.session.team.is_rank_0 and now - self.shown >= _SHOWN_EVERY:
            self.shown = now
            self.on_step(self._progress())
        self._stop_if_told()

    def epoch(self) -> None:
        if time.monotonic() - self.saved >= self.checkpoint_seconds:
            self.save()
        if self.on_epoch and self.session.team.is_rank_0:
            self.on_epoch(self._progress())
        self._stop_if_told()

    def _stop_if_told(self) -> None:
        if self.stop is not None and self.stop():
            self.session.settle()
            self.save()
            raise Stopped

    def save(self) -> None:
        """Writes all that is known so far, and from where to go on."""
        if self.session.team.is_rank_0:
            run_record.write_history(self.record.folder, self.session.history)
            checkpoints.save(self.record.folder, self.session.state_dict())
        self.saved = time.monotonic()

    def _done(self) -> float:
        session = self.session
        return (session.epoch + session.step / session.steps) / session.run.epochs

    def _progress(self) -> Progress:
        session, share = self.session, self._done()
        gained = share - self.first
        pace = (time.monotonic() - self.began) / gained if gained > 0 else None
        metrics = session.history.metrics
        return Progress(
            run=session.run,
            folder=self.record.folder,
            epoch=session.epoch,
            share=share,
            seconds_left=None if pace is None else pace * (1 - share),
            phase=session.phase,
            metrics=metrics[-1] if metrics else None,
        )
