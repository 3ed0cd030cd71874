"""Metrics for TensorBoard, written into the record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..records.history import Metrics
from ..records.run_record import Record
from ..training.callbacks import Progress
from .terminal import errors

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"


class TensorBoardWriter:
    """Writes each epoch's metrics to ``<record>/tensorboard``."""

    def __init__(self) -> None:
        self._writer: SummaryWriter | None = None

    def see(self, progress: Progress) -> None:
        """Writes the last epoch; what a stopped run wrote beyond its checkpoint is replaced."""
        if progress.metrics is not None:
            self._add(progress.folder, progress.metrics)

    def complete(self, record: Record) -> None:
        """Writes all epochs of a finished record that has no events; an archive cannot have any."""
        try:
            if not (record.folder / FOLDER).exists():
                for metrics in record.metrics:
                    self._add(record.folder, metrics)
        except OSError as error:
            errors.print(f"No events for TensorBoard beside {record.folder}: {error.strerror}.")
        self.close()

    def _add(self, folder: Path, metrics: Metrics) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # slow to import

            self._writer = SummaryWriter(
                str(folder / FOLDER), purge_step=metrics.epoch, flush_secs=5
            )
        for name, value in metrics._asdict().items():
            if isinstance(value, float):
                self._writer.add_scalar(name, value, metrics.epoch)

    def close(self) -> None:
        """Closes the file of the current run."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
