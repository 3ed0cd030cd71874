"""Callbacks of the training loop: checkpoints, progress, stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..config.run import Run
from ..records import checkpoints, run_record
from ..records.history import Metrics
from .trainer import Clock, Trainer

PROGRESS_SECONDS = 0.5  # between two calls of `on_step` of a `progress_callback`


@dataclass(frozen=True)
class Progress:
    """How far the training of a run is.

    Attributes:
        run: The run.
        folder: Its record.
        epoch: Epochs done.
        share: How much of the training is done, in [0, 1].
        phase: "frozen", "thawed" or "plain".
        metrics: Those of the last epoch, if there was one.
        ends_epoch: Whether this is the end of an epoch.
    """

    run: Run
    folder: Path
    epoch: int
    share: float
    phase: str
    metrics: Metrics | None
    ends_epoch: bool


Callback = Callable[[Progress], None]  # called after every step


class Stopped(Exception):
    """Training was asked to stop; the run can be resumed from its checkpoint."""


class CheckpointCallback:
    """Writes a checkpoint, and the history so far, whenever enough time has passed.

    Args:
        trainer: What is saved.
        folder: The record that the checkpoint belongs to.
        seconds: Time between two checkpoints.
    """

    def __init__(self, trainer: Trainer, folder: Path, seconds: float) -> None:
        self.trainer, self.folder, self.seconds = trainer, folder, seconds
        self.saved = trainer.clock.now

    def __call__(self, progress: Progress) -> None:
        # The sums of an unfinished epoch differ between processes, and only one of them saves.
        saves = progress.ends_epoch or self.trainer.group.world == 1
        if saves and self.trainer.clock.now - self.saved >= self.seconds:
            self.save()

    def save(self) -> None:
        """Writes the checkpoint now."""
        with self.trainer.clock.measure("epoch"):  # saving would wait for the steps too
            self.trainer.synchronize()
        if self.trainer.group.is_rank_0:
            run_record.write_history(self.folder, self.trainer.history)
            checkpoints.save(self.folder, self.trainer.state_dict())
        self.saved = self.trainer.clock.now


def progress_callback(
    clock: Clock, on_step: Callback | None, on_epoch: Callback | None
) -> Callback:
    """Calls ``on_step`` during epochs, at most twice a second, and ``on_epoch`` after each."""
    called = clock.now

    def call(progress: Progress) -> None:
        nonlocal called
        if progress.ends_epoch:
            if on_epoch:
                on_epoch(progress)
        elif on_step and clock.now - called >= PROGRESS_SECONDS:
            called = clock.now
            on_step(progress)

    return call
