"""The data pipeline of a run: from files to batches on the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..._text import counted
from ..config.run import Run
from ..data.batches import TensorBatches
from ..data.datasets import DataError, dataset
from ..data.locations import cache_folder, locate
from ..data.photographs.decoding_workers import STORED_SIZE
from ..data.photographs.find_photographs import open_images
from ..data.photographs.listing import Listing
from ..data.photographs.photograph_batches import (
    ResidentBatches,
    StreamedBatches,
    center_crops,
    decode_all,
    decode_center_crops,
)
from ..data.preprocess import fit
from ..data.tensors import load, split
from ..runtime.distributed import ProcessGroup

EVALUATION_BATCH = 500  # images at a time, where no gradients are needed
# Photographs that take less than this are decoded once and stay on the device.
RESIDENT_BYTES = 8 << 30
_MAX_WORKERS = 16  # more would not be faster than the device

LabeledBatch = tuple[Tensor, Tensor]  # images (B, C, H, W) without augmentation, and their classes


def _split_training(labels: Tensor, run: Run) -> tuple[Tensor, Tensor]:
    """Indices of the images that are trained on and of those held out for validation."""
    used, held_out = split(labels, run.validation)
    if len(held_out) and len(used) < run.batch:
        raise ValueError(
            f"validation {run.validation} leaves {counted(len(used), 'training image')}, fewer "
            f"than the {run.batch} of a batch: choose a smaller share"
        )
    return used, held_out


class TensorPipeline:
    """Images that are small enough to be prepared once and kept on the device.

    Attributes:
        batches: Training batches.
    """

    def __init__(
        self, run: Run, root: Path | str | None, device: torch.device, group: ProcessGroup
    ) -> None:
        self.run, self.root, self.device, self.group = run, root, device, group
        images, labels = load(run.dataset, "train", root)
        used, held_out = _split_training(labels, run)  # nothing is fitted on what is held out
        train = images[used].to(device)
        white, cache = dataset(run.dataset).white, cache_folder() / "preprocessed"
        self.transform = fit(run.preprocessing, train, white, cache)
        self.held_out = self._prepare(images[held_out], labels[held_out])
        self.batches = TensorBatches(
            self.transform(train),
            labels[used].to(device, torch.int64),
            run.batch,
            run.seed,
            flips=run.augmentation == "flips",
            group=group,
        )
        self.images = self.batches.images

    def _prepare(self, images: Tensor, labels: Tensor) -> list[LabeledBatch]:
        """Batches on the device, none of no images."""
        if not len(images):
            return []
        images = self.transform(images.to(self.device))
        labels = labels.to(self.device, torch.int64)
        return list(zip(*(t.split(EVALUATION_BATCH) for t in (images, labels)), strict=True))

    def first(self, count: int) -> Tensor:
        """The first ``count`` training images, without augmentation."""
        return self.images[:count]

    def local_images(self) -> Iterable[Tensor]:
        """This process's part of all training images, without augmentation; can be read again."""
        return self.images[self.group.rank :: self.group.world].split(EVALUATION_BATCH)

    def validation(self) -> Iterable[LabeledBatch] | None:
        """The images held out from training, if any."""
        return self.held_out or None

    def test(self) -> Iterable[LabeledBatch]:
        """The test images, opened only now; can be read again."""
        return self._prepare(*load(self.run.dataset, "test", self.root))

    def skipped(self) -> int:
        """How many images could not be decoded so far."""
        return 0


@dataclass
class _Reiterable:
    """Calls ``make`` anew for each iteration."""

    make: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.make()


class PhotographPipeline:
    """Large images in class folders or shards, of which a network sees crops.

    Few are decoded once and kept on the device, many are decoded by worker processes while the
    device trains: the batches are the same. Attributes and methods are those of `TensorPipeline`.
    """

    def __init__(
        self, run: Run, root: Path | str | None, device: torch.device, group: ProcessGroup
    ) -> None:
        self.run, self.device, self.group = run, device, group
        self.workers = min(_MAX_WORKERS, (os.cpu_count() or 1) // group.world)
        place = locate(dataset(run.dataset), root)
        train, self.val = open_images(place, group)
        expected = dataset(run.dataset).classes
        if len(train.classes) != expected:
            raise DataError(
                f"{run.dataset} has {expected} classes, but {place} has {len(train.classes)}"
            )
        used, held_out = _split_training(train.labels, run)
        self.train, self.held_out = train.select(used), train.select(held_out)
        self.images, self._skipped = None, set[str]()  # images are decoded and on the device
        self._first: Tensor | None = None
        if len(used) * 3 * STORED_SIZE**2 <= RESIDENT_BYTES:
            self.images, labels, self._skipped = decode_all(self.train, device, self.workers)
            self.batches = ResidentBatches(self.images, labels, run.batch, run.seed, group)
        else:
            self.batches = StreamedBatches(
                self.train, run.batch, run.seed, device, group, self.workers
            )

    def first(self, count: int) -> Tensor:
        if self._first is None or len(self._first) < count:
            self._first = next(self._center_crops(slice(count)))
        return self._first[:count]

    def local_images(self) -> Iterable[Tensor]:
        part = slice(self.group.rank, None, self.group.world)
        return _Reiterable(lambda: self._center_crops(part))

    def _center_crops(self, part: slice) -> Iterator[Tensor]:
        if self.images is not None:
            return center_crops(self.images[part])
        chosen = self.train.select(torch.arange(len(self.train))[part])
        return (images for images, _ in self._decode(chosen))

    def _decode(self, listing: Listing) -> Iterator[LabeledBatch]:
        return decode_center_crops(listing, self.device, self.workers, self._skipped)

    def validation(self) -> Iterable[LabeledBatch] | None:
        return self._decode(self.held_out) if len(self.held_out) else None

    def test(self) -> Iterable[LabeledBatch]:
        return _Reiterable(lambda: self._decode(self.val))

    def skipped(self) -> int:
        return len(self._skipped | self.batches.skipped)


DataPipeline = TensorPipeline | PhotographPipeline


def open_data_pipeline(
    run: Run, root: Path | str | None, device: torch.device, group: ProcessGroup
) -> DataPipeline:
    """Reads the training part of the run's data set; its test part stays closed."""
    photographs = dataset(run.dataset).kind == "photographs"
    return (PhotographPipeline if photographs else TensorPipeline)(run, root, device, group)
