"""Records: one folder a run, from which every table and figure is made.

    <records>/<YYYYmmdd-HHMMSS>-<dataset>-<activation>-s<seed>-<key>/
        run.json                the run, the environment, the result (null until it has one)
        metrics.csv             one line an epoch
        parameters.safetensors  per SReLU layer (epochs, 4, C): t_r, a_r, t_l, a_l
        inputs.safetensors      per layer quantiles and mean magnitude of the activation's inputs
        predictions.gz          the predicted class of every test image, one byte each
        labels.gz               the true class, likewise
        checkpoint.pt           where an unfinished run goes on

Names sort by time and nothing is overwritten: a run that was finished is never trained again, one
that was not goes on in its own folder.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from . import files
from .history import History, Inputs, Metrics, inputs_from
from .run import Run

FORMAT = 1


class RecordError(ValueError):
    """A record cannot be read: which, why, and what to do."""


@dataclass(frozen=True)
class Record:
    """A run's folder, as it is on disk now.

    Attributes:
        folder: Where it lies.
        run: What was trained.
        environment: Versions, hardware and state of the source code when it was started.
        result: None until the run has ended, then "status" ("finished", "dead" or "diverged"),
            "test_error", "test_loss", "train_loss", "epochs", "seconds" and more.
        metrics: One `Metrics` an epoch.
    """

    folder: Path
    run: Run
    environment: Mapping[str, Any]
    result: Mapping[str, Any] | None
    metrics: list[Metrics]

    def parameters(self) -> dict[str, Tensor]:
        """Per SReLU layer, (epochs, 4, C): t_r, a_r, t_l, a_l after each epoch; else empty."""
        return _read_tensors(self.folder / "parameters.safetensors")

    def inputs(self) -> Inputs:
        """How the inputs of each activation were distributed, epoch by epoch."""
        return inputs_from(_read_tensors(self.folder / "inputs.safetensors"))

    def predictions(self) -> Tensor:
        """The predicted class of every test image in the data set's order, uint8."""
        return _read_bytes(self.folder / "predictions.gz")

    def labels(self) -> Tensor:
        """The true class of every test image, uint8."""
        return _read_bytes(self.folder / "labels.gz")


def load(folder: Path | str) -> Record:
    """Reads the record in ``folder``."""
    folder = Path(folder)
    path = folder / "run.json"
    if not path.is_file():
        raise RecordError(f"{folder} is not the record of a run: it has no run.json")
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        version = plain["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(
            f"{path} is damaged ({error}): move the folder away to train the run again"
        ) from error
    if version != FORMAT:
        raise RecordError(
            f"{path} has format {version}, this torch_srelu reads format {FORMAT}: use the version "
            "that wrote it, or another records folder"
        )
    try:
        run = Run.from_dict(plain["run"])
        environment, result = plain["environment"], plain["result"]
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path} does not describe a run: {error}") from error
    return Record(folder, run, environment, result, _read_metrics(folder / "metrics.csv"))


def find(root: Path | str) -> list[Record]:
    """All records below ``root``, oldest first; other files and folders are passed over."""
    root = Path(root)
    if not root.is_dir():
        return []
    return [load(path.parent) for path in sorted(root.glob("*/run.json"))]


def finished(root: Path | str, run: Run) -> Record | None:
    """The newest record of exactly this run that has a result."""
    return next((r for r in reversed(_of(root, run)) if r.result is not None), None)


def unfinished(root: Path | str, run: Run) -> Record | None:
    """The newest record of exactly this run that has no result yet."""
    return next((r for r in reversed(_of(root, run)) if r.result is None), None)


def create(root: Path | str, run: Run, environment: Mapping[str, Any]) -> Record:
    """Makes the folder of a new run."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = Path(root) / f"{stamp}-{run.dataset}-{run.activation}-s{run.seed}-{run.key()}"
    folder.mkdir(parents=True, exist_ok=False)
    write_run(folder, run, environment, result=None)
    return load(folder)


def write_run(
    folder: Path, run: Run, environment: Mapping[str, Any], result: Mapping[str, Any] | None
) -> None:
    """Writes run.json; a result in it is what makes a run finished."""
    plain = {
        "format": FORMAT,
        "run": run.to_dict(),
        "environment": dict(environment),
        "result": None if result is None else dict(result),
    }
    text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
    files.write(folder / "run.json", text.encode())


def write_history(folder: Path, history: History) -> None:
    """Writes what is known per epoch, replacing what was known before."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(Metrics._fields)
    for row in history.metrics:
        writer.writerow(["" if value is None else value for value in row])
    files.write(folder / "metrics.csv", table.getvalue().encode())
    if history.parameters:
        _write_tensors(folder / "parameters.safetensors", history.parameter_tensors())
    _write_tensors(folder / "inputs.safetensors", history.input_tensors())


def write_predictions(folder: Path, predictions: Tensor, labels: Tensor) -> None:
    """Writes the predicted and the true class of every test image, one byte each."""
    for name, classes in (("predictions", predictions), ("labels", labels)):
        raw = classes.to("cpu", torch.uint8).numpy().tobytes()
        files.write(folder / f"{name}.gz", gzip.compress(raw, mtime=0))


def _of(root: Path | str, run: Run) -> list[Record]:
    key = run.key()
    paths = sorted(Path(root).glob(f"*-{key}/run.json"))
    return [record for path in paths if (record := load(path.parent)).run == run]


def _read_metrics(path: Path) -> list[Metrics]:
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        return [
            Metrics(
                epoch=int(row["epoch"]),
                lr=float(row["lr"]),
                train_loss=float(row["train_loss"]),
                train_error=float(row["train_error"]),
                grad_norm=float(row["grad_norm"]),
                seconds=float(row["seconds"]),
                val_error=float(row["val_error"]) if row["val_error"] else None,
                phase=row["phase"],
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path} is damaged: {error!r}") from error


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    files.write(path, safetensors.torch.save(contiguous))


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        return {}
    try:
        return safetensors.torch.load(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise RecordError(f"{path} is damaged: {error}") from error


def _read_bytes(path: Path) -> Tensor:
    if not path.is_file():
        raise RecordError(f"{path} does not exist: predictions are written when a run has finished")
    try:
        raw = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)
