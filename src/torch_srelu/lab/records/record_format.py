"""Parsing the files of a record, with errors for content that no training writes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config.run import Run
from .history import Metrics
from .run_status import DEAD, DIVERGED, FINISHED

FORMAT = 1
_ENDED = (FINISHED, DEAD, DIVERGED)
_NEEDED = ("status", "test_error", "epochs", "seconds")  # of every result
_PARSERS = {  # of columns of a metrics.csv that are not floats
    "epoch": int,
    "val_error": lambda text: float(text) if text else None,
    "phase": str,
}
# Numbers by the end of their names: the largest, their range in words, whether they may be None.
_RANGES = {
    "error": (1.0, "a share in [0, 1]", True),
    "loss": (math.inf, "a number from 0 on", True),
    "seconds": (math.inf, "a number from 0 on", False),
}


# The order of layers from the input of a network to its output, for records that lack it.
_NIN = ["conv1", "cccp1", "cccp2", "conv2", "cccp3", "cccp4", "conv3", "cccp5", "cccp6"]
_BRANCHES = ["one", "three_reduce", "three", "five_reduce", "five", "pool_project"]
_BLOCKS = ["3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"]
_GOOGLENET = [
    *("stem.conv1", "stem.conv2_reduce", "stem.conv2"),
    *(f"inceptions.{block}.{branch}" for block in _BLOCKS for branch in _BRANCHES),
    *("heads.4a.conv", "heads.4a.fc", "heads.4d.conv", "heads.4d.fc"),
]
# By the beginning of the network's name, the first that fits. The layers of all other networks are
# in the order of their names.
_ORDERS = {
    "nin-digits": ["conv1", "cccp1", "conv2", "cccp2", "conv3", "cccp3"],
    "nin-": _NIN,
    "dsn-": _NIN,
    "googlenet-": _GOOGLENET,
}


class RecordError(ValueError):
    """A record cannot be read: which, why, and what to do."""


def damaged(path: Path, why: object) -> RecordError:
    """The error for a file that is not as it was written."""
    return RecordError(
        f"{path} is damaged ({why}): restore it, or move the record away to train the run again"
    )


def parse_run(
    raw: bytes, path: Path
) -> tuple[Run, dict[str, Any], dict[str, Any] | None, tuple[str, ...]]:
    """The run, the environment, the result and the layers of a run.json, as in `Record`."""
    try:
        plain = json.loads(raw)
    except ValueError as error:
        raise damaged(path, error) from error
    if not isinstance(plain, dict) or "format" not in plain:
        raise damaged(path, "it does not say which format it has")
    if plain["format"] != FORMAT:
        raise RecordError(
            f"{path} has format {plain['format']}, this torch_srelu reads format {FORMAT}: use the "
            "version that wrote it, or another records folder"
        )
    for name in ("run", "environment", "result"):
        if name not in plain:
            raise damaged(path, f"it has no {name}")
    if not isinstance(plain["environment"], dict):
        raise damaged(path, f"its environment is {plain['environment']!r}")
    try:
        run = Run.from_dict(plain["run"])
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path} does not describe a run: {error}") from error
    result = plain["result"]
    if result is not None and (why := _impossible(result, run)):
        raise damaged(path, why)
    layers = plain.get("layers", [])  # which older versions did not write
    if not isinstance(layers, list) or not all(isinstance(name, str) for name in layers):
        raise damaged(path, f"its layers are {layers!r}")
    return run, plain["environment"], result, tuple(layers) or default_order(run.net)


def default_order(net: str) -> tuple[str, ...]:
    """The layers of a network that existed before records stored their order."""
    return tuple(next((order for start, order in _ORDERS.items() if net.startswith(start)), ()))


def _impossible(result: Mapping[str, Any], run: Run) -> str | None:
    """Why no training of ``run`` can have this result; None if it can."""
    if not isinstance(result, dict):
        return f"its result is {result!r}"
    for name in _NEEDED:
        if name not in result:
            return f"its result has no {name}"
    if result["status"] not in _ENDED:
        return f"status is {result['status']!r}, none of {', '.join(_ENDED)}"
    epochs = result["epochs"]
    if type(epochs) is not int or not 1 <= epochs <= run.epochs:
        return f"epochs is {epochs!r}, of a run of {run.epochs}"
    if result["status"] == FINISHED and result["test_error"] is None:
        return "test_error is None, but the run has finished"
    return _out_of_range(result)


def _out_of_range(numbers: Mapping[str, Any]) -> str | None:
    """Which number is not in the range that its name says; None if all are."""
    for name, value in numbers.items():
        highest, words, optional = _RANGES.get(name.rpartition("_")[2], (None, "", False))
        if highest is None or (optional and value is None):
            continue
        if type(value) not in (int, float) or not 0 <= value <= highest:
            return f"{name} is {value!r}, not {words}"
    return None


def parse_metrics(raw: bytes, path: Path) -> list[Metrics]:
    """The epochs of a metrics.csv."""
    try:
        found = [
            Metrics(*(_PARSERS.get(name, float)(row[name]) for name in Metrics._fields))
            for row in csv.DictReader(io.StringIO(raw.decode(), newline=""))
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, "a line is not that of an epoch") from error
    for metrics in found:
        numbers = metrics._asdict()
        del numbers["train_loss"]  # which is anything where a run diverges
        if why := _out_of_range(numbers):
            raise damaged(path, f"epoch {metrics.epoch}: {why}")
    return found


def parse_classes(raw: bytes, path: Path) -> Tensor:
    """Classes of images as uint8, of a predictions.gz or labels.gz."""
    try:
        unpacked = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, error) from error
    if not unpacked:
        raise damaged(path, "it holds no classes")
    return torch.frombuffer(bytearray(unpacked), dtype=torch.uint8)
