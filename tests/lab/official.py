"""Small data sets in the official formats, and their descriptions with checksums that fit."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from torch_srelu.lab.data import cifar
from torch_srelu.lab.data.datasets import DATASETS, DatasetSpec


def idx_file(array: np.ndarray) -> bytes:
    """An array of bytes as an idx file."""
    header = bytes([0, 0, 8, array.ndim])
    return header + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def describe(name: str, contents: dict[str, bytes]) -> DatasetSpec:
    """The registered data set, but with the checksums of these contents."""
    data = DATASETS[name]
    sums = {file: hashlib.md5(raw).hexdigest() for file, raw in contents.items()}
    parts = [{file: sums[file] for file in part} for part in (data.train, data.test)]
    return dataclasses.replace(data, train=parts[0], test=parts[1])


def cifar_rows(name: str, count: int) -> dict[str, np.ndarray]:
    """The records of every official file of a CIFAR: labels first, then pixels, all random."""
    data, rng = DATASETS[name], np.random.default_rng(1)
    rows = {}
    for file in data.files:
        labels = rng.integers(0, data.classes, (count, data.label_bytes), dtype=np.uint8)
        pixels = rng.integers(0, 256, (count, cifar.PIXELS), dtype=np.uint8)
        rows[file] = np.concatenate([labels, pixels], axis=1)
    return rows


def mnist_arrays(count: int) -> dict[str, np.ndarray]:
    """What the official files of MNIST hold, random, half as many images for the test."""
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(0, 10 if "labels" in name else 256, shape, dtype=np.uint8)
        for name, shape in (
            ("train-images-idx3-ubyte", (count, 28, 28)),
            ("train-labels-idx1-ubyte", (count,)),
            ("t10k-images-idx3-ubyte", (count // 2, 28, 28)),
            ("t10k-labels-idx1-ubyte", (count // 2,)),
        )
    }


def write_small(root: Path, name: str, count: int) -> DatasetSpec:
    """Writes ``count`` images a file where the data set is looked for, and describes them."""
    if name == "mnist":
        contents = {file: idx_file(array) for file, array in mnist_arrays(count).items()}
    else:
        contents = {file: rows.tobytes() for file, rows in cifar_rows(name, count).items()}
    folder = root / DATASETS[name].folders[0]
    folder.mkdir(parents=True)
    for file, raw in contents.items():
        (folder / file).write_bytes(raw)
    return describe(name, contents)
