"""Lists images: names, classes, and where their bytes are in class folders or tar shards."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..datasets import DataError

PARTS = ("train", "val")
SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")


@dataclass(frozen=True)
class Listing:
    """The images of one part of a data set.

    Names and places are arrays, not lists of objects, since all worker processes share them:
    reference counting would copy the memory of a million objects.

    Attributes:
        root: The folder that the files are in.
        classes: Names of the classes, in the order of their numbers.
        labels: The class of each image (N,), int64.
        names: Name of each image, encoded (N,): its path below the root, or for an image
            in a shard the path of the shard, a colon and its name there.
        places: For shards, offset and length of each image in its file (N, 2); None for files.
    """

    root: Path
    classes: tuple[str, ...]
    labels: Tensor
    names: np.ndarray
    places: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """Name of image ``index``."""
        return os.fsdecode(self.names[index])

    def read(self, index: int) -> bytes:
        """The bytes of image ``index``, as encoded in its file."""
        if self.places is None:
            return (self.root / self.name(index)).read_bytes()
        offset, length = self.places[index].tolist()
        with open(self.root / self.name(index).rpartition(":")[0], "rb") as shard:
            shard.seek(offset)
            return shard.read(length)

    def select(self, chosen: Tensor) -> Listing:
        """The listing of the ``chosen`` images (n,) alone, in this order."""
        places = None if self.places is None else self.places[chosen.numpy()]
        return replace(
            self, labels=self.labels[chosen], names=self.names[chosen.numpy()], places=places
        )

    def contents(self) -> dict[str, int]:
        """How many images each class folder or shard holds."""
        separator = "/" if self.places is None else ":"
        names = (self.name(i).rpartition(separator)[0] for i in range(len(self)))
        return dict(Counter(names))


def from_folders(root: Path, part: str) -> Listing:
    """The images in ``root/part/CLASS/``; classes are numbered in the order of their names.

    Example:
        >>> from_folders(Path("nowhere"), "train")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        torch_srelu.lab.data.datasets.DataError: nowhere/train has no class folders: ...
    """
    folder = root / part
    classes = sorted(path.name for path in folder.glob("[!.]*") if path.is_dir())
    if not classes:
        raise DataError(
            f"{folder} has no class folders: expected {folder}/CLASS/IMAGE for every class, or tar "
            f"shards {folder}/*.tar"
        )
    names: list[bytes] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = sorted(
            entry.name
            for entry in os.scandir(folder / name)
            if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".")
        )
        if not images:
            raise DataError(
                f"{folder / name} holds no image ({', '.join(SUFFIXES)}): complete it or remove it"
            )
        names += [os.fsencode(f"{part}/{name}/{image}") for image in images]
        labels += [label] * len(images)
    return Listing(root, tuple(classes), torch.tensor(labels), np.array(names))


def check_same_classes(train: Listing, val: Listing) -> None:
    """Raises DataError if the two parts do not have the same classes."""
    only = [sorted(set(a.classes) - set(b.classes)) for a, b in ((train, val), (val, train))]
    if any(only):
        found = "; ".join(
            f"only in {part}: {some_of(names)}"
            for part, names in zip(PARTS, only, strict=True)
            if names
        )
        raise DataError(
            f"train and val of {train.root} do not have the same classes ({found}): classes are "
            "numbered by their names, so both parts need all of them"
        )


def some_of(names: list[str]) -> str:
    """The first names of a list that may be long, for an error."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
