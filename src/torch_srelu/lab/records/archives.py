"""Archives of records: one file a run, small enough to be committed.

An archive has the run.json, the metrics and the test predictions of a finished record, and the last
epoch of its tensors, bit for bit. It has no checkpoint, and the true classes of the test images are
stored once for each data set beside the archives.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

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


def collect(chosen: Sequence[Record], results: Path) -> tuple[list[Record], list[Record]]:
    """Packs records into ``results``: all that are new or, if one is refused, none.

    A run that is there already, with equal content, is passed over.

    Args:
        chosen: Finished records.
        results: The folder; it is made if need be.

    Returns:
        The records that were added, and those that were there before.
    """
    stored: dict[str, list[Record]] = {}  # by key
    for record in run_record.find(results):
        stored.setdefault(record.run.key(), []).append(record)
    first = {key: found[0] for key, found in stored.items()}
    new: dict[Path, bytes] = {}
    known: list[Record] = []
    labels: dict[Path, Tensor] = {}
    for record in chosen:
        if record.result is None:
            raise ValueError(f"{record.folder} is not finished: train it to its end first")
        packed = pack(record)
        key = record.run.key()
        # Packed anew: other versions of the compressor write the same content in other bytes.
        if any(pack(other) == packed for other in stored.get(key, [])):
            known.append(record)
            continue
        other = first.setdefault(key, record)
        if other is not record:
            raise ValueError(
                f"{other.folder} is another record of the run in {record.folder}: only one can "
                "count; remove one of the two"
            )
        new[results / f"{record.folder.name.removesuffix(ARCHIVE)}{ARCHIVE}"] = packed
        if record.tested:
            _check_labels(labels, run_record.labels_file(results, record.run.dataset), record)
    results.mkdir(parents=True, exist_ok=True)
    for path, classes in labels.items():
        if not path.exists():
            files.write(path, gzip.compress(classes.numpy().tobytes(), mtime=0))
    for path, packed in new.items():
        files.write(path, packed)
    return [run_record.load(path) for path in new], known


def pack(record: Record) -> bytes:
    """The archive of a finished record; equal records give equal bytes."""
    content = {name: record.read(name) for name in WHOLE}
    for name in LAST_EPOCH:
        tensors = record.tensors(name).items()
        last = {n: t if n in _EPOCHLESS else t[-1:] for n, t in tensors}
        content[name] = safetensors.torch.save(last) if last else None
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, raw in content.items():
            if raw is not None:
                info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same time in all archives
                archive.writestr(info, raw, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def _check_labels(labels: dict[Path, Tensor], path: Path, record: Record) -> None:
    """Raises ValueError unless ``record`` was tested with the true classes of ``path``.

    If there is no such file, the first record's classes are its content; ``labels`` has them.
    """
    if path not in labels:
        stored = path.read_bytes() if path.exists() else None
        labels[path] = record.labels() if stored is None else parse_classes(stored, path)
    if not torch.equal(labels[path], record.labels()):
        raise ValueError(
            f"{record.folder} was tested on other labels than those of {path}: its test data are "
            "not the same"
        )
