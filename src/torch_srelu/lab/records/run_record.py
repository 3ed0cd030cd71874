"""Reading and writing the record of a run, a folder from which tables and figures are made.

    <records>/<YYYYmmdd-HHMMSS>-<dataset>-<activation>-s<seed>-<key>/
        run.json                the run, the environment, the result (null until it has one), the
                                order of the layers
        metrics.csv             one line an epoch
        parameters.safetensors  per SReLU layer (epochs, 4, C): t_r, a_r, t_l, a_l
        weights.safetensors     per layer the root mean square of its weights
        inputs.safetensors      per layer quantiles and mean magnitude of the activation's inputs
        predictions.gz          the predicted class of every test image, one byte each
        labels.gz               the true class, likewise
        checkpoint.pt           from which an unfinished run is resumed
        .lock                   locked by the process that trains it

Names sort by time and nothing is overwritten: a finished run is never trained again, an unfinished
one is resumed in its own folder. A finished record may also be an archive, ``<name>.zip``, with the
same files but the checkpoint, and the last epoch's tensors alone (see `archives`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import time
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ..config.run import Run
from ..util import files
from .history import History, InputStatistics, Metrics, input_statistics
from .record_format import FORMAT, RecordError, damaged, parse_classes, parse_metrics, parse_run
from .run_status import UNFINISHED

ARCHIVE = ".zip"
_NAME = re.compile(r"\d{8}-\d{6}-.+-s\d+-[0-9a-f]{10}")  # of a record, see `create`
# What zipfile raises for a file of which a bit has flipped.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)

Results = Mapping[str, Mapping[str, Any]]  # of the runs that have ended, by key


@dataclass(frozen=True)
class Record:
    """A run's folder or archive, as it is on disk now.

    Attributes:
        folder: The folder or archive.
        run: What was trained.
        environment: Versions, hardware and state of the source code where it was trained last;
            earlier ones, if it was resumed in another, are under "before".
        result: None until the run has ended, then "status" ("finished", "dead" or "diverged"),
            "test_error", "test_loss", "train_loss", "epochs", "seconds" and more.
        layers: The layers that have activations, from the input of the network to its output.
        metrics: One `Metrics` an epoch.
    """

    folder: Path
    run: Run
    environment: Mapping[str, Any]
    result: Mapping[str, Any] | None
    layers: tuple[str, ...]
    metrics: list[Metrics]

    @property
    def status(self) -> str:
        """How the run ended, or "unfinished"; see `run_status`."""
        return self.result["status"] if self.result else UNFINISHED

    @property
    def environments(self) -> list[Mapping[str, Any]]:
        """All environments in which it was trained, the last one first."""
        return [self.environment, *self.environment.get("before", ())]

    def parameters(self) -> dict[str, Tensor]:
        """Per SReLU layer, (epochs, 4, C): t_r, a_r, t_l, a_l after each epoch; else empty.

        An archive has the last epoch alone.
        """
        return self.tensors("parameters.safetensors")

    def inputs(self) -> InputStatistics | None:
        """Statistics of the inputs of each activation, by epoch; None if not recorded.

        An archive has the last epoch alone.
        """
        tensors = self.tensors("inputs.safetensors")
        return input_statistics(tensors) if tensors else None

    def weights(self) -> dict[str, Tensor]:
        """Per layer, (epochs,): the root mean square of its weights; empty if not recorded.

        An archive has the last epoch alone.
        """
        return self.tensors("weights.safetensors")

    @property
    def tested(self) -> bool:
        """Whether the predictions for the test images are there."""
        return self.read("predictions.gz") is not None

    def predictions(self) -> Tensor:
        """The predicted class of every test image in the data set's order, uint8."""
        raw = self.read("predictions.gz")
        if raw is None:
            raise RecordError(
                f"{self.folder} has no predictions.gz: it is written when a run has finished"
            )
        return parse_classes(raw, self.folder / "predictions.gz")

    def labels(self) -> Tensor:
        """The true class of every test image, uint8."""
        raw, path = self.read("labels.gz"), self.folder / "labels.gz"
        if raw is None:
            path = labels_file(self.folder.parent, self.run.dataset)
            raw = _read(path.parent, path.name)
        if raw is None:
            raise RecordError(f"{self.folder} has no labels.gz, and {path} does not exist")
        return parse_classes(raw, path)

    def wrong(self) -> Tensor:
        """Whether each test image was misclassified, bool."""
        predictions, labels = self.predictions(), self.labels()
        if len(predictions) != len(labels):
            why = f"{len(predictions)} classes, of {len(labels)} images"
            raise damaged(self.folder / "predictions.gz", why)
        return predictions != labels

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Names of layers from the input of the network to its output; unknown ones last."""
        places = {name: i for i, name in enumerate(self.layers)}
        return sorted(names, key=lambda name: (places.get(name, len(places)), name))

    def read(self, name: str) -> bytes | None:
        """The bytes of the file ``name``; None if the record has none."""
        return _read(self.folder, name)

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of the file ``name``; empty if the record has none."""
        raw = self.read(name)
        if raw is None:
            return {}
        try:
            return safetensors.torch.load(raw)
        except safetensors.SafetensorError as error:
            raise damaged(self.folder / name, error) from error


def labels_file(root: Path, dataset: str) -> Path:
    """The file with the true classes of the test images, for all archives in ``root``."""
    return root / f"labels-{dataset}.gz"


def seconds_of(result: Mapping[str, Any]) -> float:
    """Seconds of training, its adaptive initialisation included, startup excluded."""
    return result["seconds"] + result.get("adapt_seconds", 0.0)


def load(folder: Path | str) -> Record:
    """Reads the record in ``folder``, which may be an archive."""
    folder = Path(folder)
    path, raw = folder / "run.json", _read(folder, "run.json")
    if raw is None:
        raise RecordError(f"{folder} is not the record of a run: it has no run.json")
    run, environment, result, layers = parse_run(raw, path)
    path, raw = folder / "metrics.csv", _read(folder, "metrics.csv")
    metrics = parse_metrics(raw or b"", path)
    if result is not None and not metrics:  # a run ends after an epoch
        raise damaged(path, "it is missing" if raw is None else "it has no epochs")
    return Record(folder, run, environment, result, layers, metrics)


def find(root: Path | str) -> list[Record]:
    """All records below ``root``, oldest first; other files and folders are passed over."""
    root = Path(root)
    return _load_all(root, "*") if files.is_folder(root) else []


def with_key(root: Path | str, key: str) -> list[Record]:
    """The records of the run that has this key, oldest first."""
    return [record for record in _load_all(Path(root), f"*-{key}") if record.run.key() == key]


def results(found: Iterable[Record]) -> dict[str, Mapping[str, Any]]:
    """The results of the runs that have one, by the run's key; the last record of a run counts."""
    return {record.run.key(): record.result for record in found if record.result is not None}


def finished(root: Path | str, run: Run) -> Record | None:
    """The newest record of exactly this run that has a result."""
    return next((r for r in reversed(with_key(root, run.key())) if r.result is not None), None)


def unfinished(root: Path | str, run: Run) -> Record | None:
    """The newest record of exactly this run that has no result yet."""
    return next((r for r in reversed(with_key(root, run.key())) if r.result is None), None)


def create(root: Path | str, run: Run, environment: Mapping[str, Any]) -> Record:
    """Makes the folder of a new run."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = Path(root) / f"{stamp}-{run.dataset}-{run.activation}-s{run.seed}-{run.key()}"
    folder.mkdir(parents=True, exist_ok=False)
    try:
        write_run(folder, run, environment, result=None)
    except OSError:  # a full disk
        folder.rmdir()
        raise
    return load(folder)


def write_run(
    folder: Path,
    run: Run,
    environment: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    layers: Iterable[str] = (),
) -> None:
    """Writes run.json; a result in it is what makes a run finished."""
    plain = {
        "format": FORMAT,
        "run": run.to_dict(),
        "environment": dict(environment),
        "result": None if result is None else dict(result),
        "layers": list(layers),
    }
    text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
    files.write(folder / "run.json", text.encode())


def write_history(folder: Path, history: History) -> None:
    """Writes the history of all epochs so far, replacing earlier ones."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(Metrics._fields)
    for row in history.metrics:
        writer.writerow(["" if value is None else value for value in row])
    files.write(folder / "metrics.csv", table.getvalue().encode())
    for name, tensors in (
        ("parameters", history.series("parameters")),
        ("inputs", history.input_tensors()),
        ("weights", history.series("weights")),
    ):
        if tensors:
            files.write(folder / f"{name}.safetensors", safetensors.torch.save(tensors))


def write_predictions(folder: Path, predictions: Tensor, labels: Tensor) -> None:
    """Writes the predicted and the true class of every test image, one byte each."""
    for name, classes in (("predictions", predictions), ("labels", labels)):
        raw = classes.to("cpu", torch.uint8).numpy().tobytes()
        files.write(folder / f"{name}.gz", gzip.compress(raw, mtime=0))


def _load_all(root: Path, pattern: str) -> list[Record]:
    folders = [path.parent for path in root.glob(f"{pattern}/run.json")]
    archives = [path for path in root.glob(f"{pattern}{ARCHIVE}") if _is_record(path)]
    return [load(path) for path in sorted([*folders, *archives], key=lambda path: path.name)]


def _is_record(archive: Path) -> bool:
    """Whether an archive is a record, or damaged, so that `load` raises the error."""
    if not archive.is_file() or _NAME.fullmatch(archive.stem):
        return archive.is_file()
    try:
        with zipfile.ZipFile(archive) as opened:
            return "run.json" in opened.namelist()
    except zipfile.BadZipFile:
        return True


def _read(record: Path, name: str) -> bytes | None:
    """The file ``name`` of a folder or an archive; None if it has none."""
    if record.suffix != ARCHIVE:
        path = record / name
        return path.read_bytes() if path.is_file() else None
    try:
        with zipfile.ZipFile(record) as archive:
            return archive.read(name) if name in archive.namelist() else None
    except _UNREADABLE as error:
        raise damaged(record, error) from error
    except OSError as error:
        if error.filename is not None:  # from the file system, naming the file
            raise
        raise damaged(record, error) from error
