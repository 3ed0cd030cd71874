"""Records small enough to be committed: one archive a run, read by the code that reads records.

An archive keeps of a finished record the run, the environment, the result, the metrics of every
epoch, the test predictions, and of the learned parameters, the inputs of activations and the size
of weights the last epoch. Nothing that is kept loses a bit. Checkpoints stay behind, and the true
classes of the test images are stored once for each data set beside the archives.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from ..util import files
from . import run_record
from .record_format import parse_classes
from .run_record import ARCHIVE, Record

WHOLE = ("run.json", "metrics.csv", "predictions.gz")
LAST_EPOCH = ("parameters.safetensors", "inputs.safetensors", "weights.safetensors")
_EPOCHLESS = ("probabilities",)  # tensors of inputs.safetensors that belong to no epoch


class Collected(NamedTuple):
    """What `collect` did: records that were added, and those that were there before."""

    added: list[Record]
    known: list[Record]


def collect(chosen: Sequence[Record], results: Path) -> Collected:
    """Packs records into ``results``; either all that are new or, if one is refused, none.

    A run that is there already, with equal content, is passed over.

    Args:
        chosen: Finished records.
        results: The folder; it is made if need be.
    """
    stored: dict[str, list[Record]] = {}  # under whatever name
    for record in run_record.find(results):
        stored.setdefault(record.run.key(), []).append(record)
    new: list[tuple[Path, bytes]] = []
    keys: dict[str, Path] = {}  # of the new ones
    known: list[Record] = []
    labels: dict[Path, Tensor] = {}
    for record in chosen:
        if record.result is None:
            raise ValueError(f"{record.folder} is not finished: train it to its end first")
        packed = pack(record)
        key = record.run.key()
        there = stored.get(key, [])
        # Packed anew: other versions of the compressor write the same content in other bytes.
        if any(pack(other) == packed for other in there):
            known.append(record)
            continue
        other = there[0].folder if there else keys.get(key)
        if other is not None:
            raise ValueError(
                f"{other} is another record of the run in {record.folder}: only one can count; "
                "remove one of the two"
            )
        keys[key] = record.folder
        name = record.folder.name.removesuffix(ARCHIVE)
        new.append((results / f"{name}{ARCHIVE}", packed))
        if record.tested:
            _agree(labels, run_record.labels_file(results, record.run.dataset), record)
    results.mkdir(parents=True, exist_ok=True)
    for path, classes in labels.items():
        if not path.exists():
            files.write(path, gzip.compress(classes.numpy().tobytes(), mtime=0))
    for path, packed in new:
        files.write(path, packed)
    return Collected([run_record.load(path) for path, _ in new], known)


def pack(record: Record) -> bytes:
    """The archive of a finished record; equal records give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in WHOLE:
            raw = record.read(name)
            if raw is not None:
                _add(archive, name, raw)
        for name in LAST_EPOCH:
            tensors = record.tensors(name)
            if tensors:
                last = {n: t if n in _EPOCHLESS else t[-1:] for n, t in tensors.items()}
                _add(archive, name, safetensors.torch.save(last))
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, raw: bytes) -> None:
    # A fixed time: the same record is the same file.
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), raw, zipfile.ZIP_DEFLATED, 9)


def _agree(labels: dict[Path, Tensor], path: Path, record: Record) -> None:
    """Takes in the true classes that ``record`` was tested with: the same for all runs."""
    if path not in labels:
        stored = path.read_bytes() if path.exists() else None
        labels[path] = record.labels() if stored is None else parse_classes(stored, path)
    if not torch.equal(labels[path], record.labels()):
        raise ValueError(
            f"{record.folder} was tested on other labels than those of {path}: its test data are "
            "not the same"
        )
