"""Callbacks of the training loop: checkpoints, progress, stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..config.run import Run
from ..records import checkpoints, run_record
from ..records.history import Metrics
from .clock import Clock
from .trainer import Trainer

PROGRESS_SECONDS = 0.5  # between two calls of `on_step` of a `ProgressCallback`


@dataclass(frozen=True)
class Progress:
    """How far the training of a run is.

    Attributes:
        run: The run.
        folder: Its record.
        epoch: Epochs done.
        share: How much of the training is done, in [0, 1].
        seconds_left: Estimated from the pace since training began or was resumed.
        phase: "frozen", "thawed" or "plain".
        metrics: Those of the last epoch, if there was one.
    """

    run: Run
    folder: Path
    epoch: int
    share: float
    seconds_left: float
    phase: str
    metrics: Metrics | None


class Stopped(Exception):
    """Training was asked to stop; the run can be resumed from its checkpoint."""


class Callback:
    """What the training loop calls; each method does nothing by default."""

    def on_step(self, progress: Progress) -> None:
        """Called after every step but the last of an epoch."""

    def on_epoch(self, progress: Progress) -> None:
        """Called after every epoch."""


class CheckpointCallback(Callback):
    """Writes a checkpoint, and the history so far, whenever enough time has passed.

    Args:
        trainer: What is saved.
        clock: Saved too.
        folder: The record that the checkpoint belongs to.
        seconds: Time between two checkpoints.
    """

    def __init__(self, trainer: Trainer, clock: Clock, folder: Path, seconds: float) -> None:
        self.trainer, self.clock, self.folder, self.seconds = trainer, clock, folder, seconds
        self.saved = clock.now

    def on_step(self, progress: Progress) -> None:
        # The sums of an unfinished epoch differ between processes, and only one of them saves.
        if self.trainer.group.world == 1:
            self.on_epoch(progress)

    def on_epoch(self, progress: Progress) -> None:
        if self.clock.now - self.saved >= self.seconds:
            self.save()

    def save(self) -> None:
        """Writes the checkpoint now."""
        with self.clock.measure("epoch"):  # saving would wait for the steps too
            self.trainer.synchronize()
        if self.trainer.group.is_rank_0:
            run_record.write_history(self.folder, self.trainer.history)
            state = self.trainer.state_dict() | self.clock.state_dict()
            checkpoints.save(self.folder, state)
        self.saved = self.clock.now


class ProgressCallback(Callback):
    """Calls two functions: one during epochs, at most twice a second, one after each epoch."""

    def __init__(
        self,
        clock: Clock,
        on_step: Callable[[Progress], None] | None,
        on_epoch: Callable[[Progress], None] | None,
    ) -> None:
        self.clock, self.called = clock, clock.now
        self.step_function, self.epoch_function = on_step, on_epoch

    def on_step(self, progress: Progress) -> None:
        if self.step_function and self.clock.now - self.called >= PROGRESS_SECONDS:
            self.called = self.clock.now
            self.step_function(progress)

    def on_epoch(self, progress: Progress) -> None:
        if self.epoch_function:
            self.epoch_function(progress)


class StopCallback(Callback):
    """Saves and raises `Stopped` as soon as ``stop()`` is true."""

    def __init__(self, stop: Callable[[], bool], save: Callable[[], None]) -> None:
        self.stop, self.save = stop, save

    def on_step(self, progress: Progress) -> None:
        if self.stop():
            self.save()
            raise Stopped

    on_epoch = on_step
