"""Reads data sets of small images as uint8 tensors."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import cifar, idx
from .datasets import DataError, DatasetSpec, dataset
from .locations import locate, names_on_disk, verify

_SPLIT_SEED = 20161  # fixes which images are held out, once for all runs
DIGITS_TEST_SHARE = 1 / 3


class LabeledImages(NamedTuple):
    """Images (N, C, H, W) and their classes (N,), both uint8."""

    images: Tensor
    labels: Tensor


def load(name: str, part: str, root: Path | str | None = None) -> LabeledImages:
    """The part "train" or "test" of a data set; only its own files are opened.

    Args:
        name: A registered data set.
        part: "train" or "test".
        root: A folder to search before $SRELU_DATA and the cache.

    Example:
        >>> load("digits", "train").images.shape
        torch.Size([1198, 1, 8, 8])
    """
    if part not in ("train", "test"):
        raise ValueError(f"part must be 'train' or 'test', got {part!r}")
    data = dataset(name)
    if data.kind == "digits":
        return _digits(part)
    contents = _contents(data, data.train if part == "train" else data.test, root)
    if data.kind == "idx":
        images, labels = (idx.decode(raw, where) for where, raw in contents)
        images = images[:, None]
    else:
        batches = [cifar.decode(raw, data.label_bytes, where) for where, raw in contents]
        images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    if tuple(images.shape[1:]) != data.shape or len(images) != len(labels):
        raise DataError(
            f"{data.name} should be images of {data.shape} with a label each, got "
            f"{tuple(images.shape)} and {len(labels)} labels"
        )
    return LabeledImages(images, labels)


def split(labels: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Indices of the larger and the smaller part, ``share`` of every class in the smaller one.

    Always the same for the same labels: the split belongs to the data, not to a run.

    Example:
        >>> rest, part = split(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), 0.25)
        >>> len(rest), len(part)
        (6, 2)
    """
    generator = torch.Generator().manual_seed(_SPLIT_SEED)
    shuffled = torch.randperm(len(labels), generator=generator)
    parts = []
    for label in labels.unique():
        of_class = shuffled[labels[shuffled] == label]
        parts.append(of_class[: round(share * len(of_class))])
    smaller = torch.zeros(len(labels), dtype=torch.bool)
    smaller[torch.cat(parts)] = True
    return (~smaller).nonzero()[:, 0], smaller.nonzero()[:, 0]


def _contents(
    data: DatasetSpec, names: dict[str, str], root: Path | str | None
) -> list[tuple[str, bytes]]:
    """The path of each file, for messages, with its verified content in official form."""
    place = locate(data, root)
    on_disk = {name: names_on_disk(data, name) for name in names}
    packed = cifar.read_archive(place, chain(*on_disk.values())) if place.is_file() else None
    contents = []
    for name, candidates in on_disk.items():
        there = packed or [s for s in candidates if (place / s).is_file()]
        found = next((s for s in candidates if s in there), None)
        if found is None:
            raise DataError(
                f"{place} lacks {' or '.join(candidates)}: complete it, or remove it and get the "
                f"data with `srelu data get {data.name}`"
            )
        if packed is None:
            path, where = place / found, str(place / found)
            raw = path.read_bytes()
        else:
            path, where, raw = place, f"{place}:{found}", packed[found]
        if data.kind == "idx":
            raw = idx.unpack(raw, where)
        elif found != name:
            raw = cifar.from_python(raw, data.label_bytes, where)
        verify(data, name, raw, path)
        contents.append((where, raw))
    return contents


def _digits(part: str) -> LabeledImages:
    """1,797 digits of 8 x 8 pixels that scikit-learn carries; a fixed third is the test part."""
    table = torch.from_numpy(_digits_table()).to(torch.uint8)
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1]
    train, test = split(labels, DIGITS_TEST_SHARE)
    chosen = train if part == "train" else test
    return LabeledImages(images[chosen], labels[chosen])


def _digits_table() -> np.ndarray:
    """A row for each of scikit-learn's digits: 64 pixels and the class.

    Importing scikit-learn would take two seconds in every process that trains on digits.
    """
    found = find_spec("sklearn")
    if found is not None and found.origin is not None:
        path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits  # another version, which has it elsewhere

    pixels, classes = load_digits(return_X_y=True)
    return np.column_stack([pixels, classes])
