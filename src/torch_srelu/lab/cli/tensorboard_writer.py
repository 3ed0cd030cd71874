"""Metrics for TensorBoard, beside the record: while a run is trained, or from what it left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..records.history import Metrics
from ..records.run_record import Record
from ..training.callbacks import Progress
from .terminal import errors

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"


class Events:
    """Writes each epoch's metrics to ``<record>/tensorboard``."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._writer: SummaryWriter | None = None

    def see(self, progress: Progress) -> None:
        """Takes in an epoch; what a stopped run wrote beyond its checkpoint is replaced."""
        if progress.metrics is not None:
            self._add(progress.folder, progress.metrics)

    def complete(self, record: Record) -> None:
        """Takes in all epochs of a record that was finished before, if it has no events.

        A record that cannot take them, as one in an archive, is whole without.
        """
        if (record.folder / FOLDER).exists():
            return
        try:
            for metrics in record.metrics:
                self._add(record.folder, metrics)
        except OSError as error:
            errors.print(
                f"No events for TensorBoard beside {record.folder}: {error.strerror}.",
                soft_wrap=True,
            )

    def _add(self, folder: Path, metrics: Metrics) -> None:
        if self._writer is None or self._folder != folder:
            from torch.utils.tensorboard import SummaryWriter  # slow to import, seldom wanted

            self.close()
            self._folder = folder
            self._writer = SummaryWriter(
                str(folder / FOLDER), purge_step=metrics.epoch, flush_secs=5
            )
        for name, value in metrics._asdict().items():
            if isinstance(value, float):
                self._writer.add_scalar(name, value, metrics.epoch)

    def close(self) -> None:
        """Completes the file of the run before."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@contextmanager
def events(wanted: bool) -> Iterator[Events | None]:
    """An `Events` that is closed at the end, or None if it is not wanted."""
    if not wanted:
        yield None
        return
    writer = Events()
    try:
        yield writer
    finally:
        writer.close()
