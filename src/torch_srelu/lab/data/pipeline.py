"""Where the images of a run come from: small ones as tensors on the device, or photographs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ..._text import counted
from ..config.run import Run
from ..runtime.distributed import ProcessGroup
from .batches import Batches, BatchSource
from .data_errors import DataError
from .datasets import dataset
from .locations import cache_folder, locate
from .photographs.crops import STORED
from .photographs.listing import Listing
from .photographs.opening import open_images
from .photographs.photograph_batches import (
    KeptBatches,
    StreamedBatches,
    evaluated,
    load_whole,
    middles,
)
from .preprocess import fit
from .tensors import load, split

EVALUATED = 500  # images at a time, where no gradients are needed
KEPT_BYTES = 8 << 30  # photographs that take less than this are decoded once and stay on the device
_WORKERS = 16  # at most; more would not be faster than the device

T = TypeVar("T")
Piece = tuple[Tensor, Tensor]  # images as a network is tested on them, and their classes


class Source(Protocol):
    """The data of a run, prepared."""

    @property
    def batches(self) -> BatchSource:
        """Training batches."""
        ...

    def first(self, count: int) -> Tensor:
        """The first ``count`` training images, without augmentation."""
        ...

    def own_part(self) -> Iterable[Tensor]:
        """This process's part of all training images, without augmentation; can be read again."""
        ...

    def validation(self) -> Iterable[Piece] | None:
        """The images kept apart from training, if any."""
        ...

    def test(self) -> Iterable[Piece]:
        """The test images, opened only now; can be read again."""
        ...

    def skipped(self) -> int:
        """How many images could not be decoded so far."""
        ...


def open_source(
    run: Run, root: Path | str | None, device: torch.device, team: ProcessGroup
) -> Source:
    """Reads the training part of the run's data set; its test part stays closed."""
    kind = Photographs if dataset(run.dataset).kind == "photographs" else Tensors
    return kind(run, root, device, team)


def _apart(labels: Tensor, run: Run) -> tuple[Tensor, Tensor]:
    """Indices of the images that are trained on and of those kept apart for validation."""
    used, held = split(labels, run.validation)
    if len(held) and len(used) < run.batch:
        raise ValueError(
            f"validation {run.validation} leaves {counted(len(used), 'training image')}, fewer "
            f"than the {run.batch} of a batch: choose a smaller share"
        )
    return used, held


class Held(NamedTuple):
    """Prepared images on the device, and their classes."""

    images: Tensor
    labels: Tensor

    def pieces(self) -> Iterator[Piece]:
        """A few at a time."""
        return zip(self.images.split(EVALUATED), self.labels.split(EVALUATED), strict=True)


class Tensors:
    """Images that are small enough to be prepared once and kept on the device."""

    def __init__(
        self, run: Run, root: Path | str | None, device: torch.device, team: ProcessGroup
    ) -> None:
        self.run, self.root, self.device, self.team = run, root, device, team
        images, labels = load(run.dataset, "train", root)
        used, held = _apart(labels, run)  # nothing is fitted on what is held out
        train = images[used].to(device)
        white, cache = dataset(run.dataset).white, cache_folder() / "preprocessed"
        self.transform = fit(run.preprocessing, train, white, cache)
        self.held = self._prepare(images[held], labels[held]) if len(held) else None
        self.batches = Batches(
            self.transform(train),
            labels[used].to(device, torch.int64),
            run.batch,
            run.seed,
            flips=run.augmentation == "flips",
            team=team,
        )

    def _prepare(self, images: Tensor, labels: Tensor) -> Held:
        return Held(self.transform(images.to(self.device)), labels.to(self.device, torch.int64))

    def first(self, count: int) -> Tensor:
        return self.batches.images[:count]

    def own_part(self) -> Iterable[Tensor]:
        return self.batches.images[self.team.rank :: self.team.world].split(EVALUATED)

    def validation(self) -> Iterable[Piece] | None:
        return None if self.held is None else self.held.pieces()

    def test(self) -> Iterable[Piece]:
        return list(self._prepare(*load(self.run.dataset, "test", self.root)).pieces())

    def skipped(self) -> int:
        return 0


class _Again(Generic[T]):
    """What ``make`` gives, anew for each reading."""

    def __init__(self, make: Callable[[], Iterator[T]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[T]:
        return self.make()


class Photographs:
    """Large images in class folders or shards, of which a network sees crops.

    Few are decoded once and kept on the device, many are decoded by worker processes in time: the
    batches are the same.
    """

    def __init__(
        self, run: Run, root: Path | str | None, device: torch.device, team: ProcessGroup
    ) -> None:
        self.run, self.device, self.team = run, device, team
        self.workers = min(_WORKERS, (os.cpu_count() or 1) // team.world)
        place = locate(dataset(run.dataset), root)
        train, self.val = open_images(place, team)
        expected = dataset(run.dataset).classes
        if len(train.classes) != expected:
            raise DataError(
                f"{run.dataset} has {expected} classes, but {place} has {len(train.classes)}"
            )
        used, held = _apart(train.labels, run)
        self.train, self.held = train.select(used), train.select(held)
        self.kept: Tensor | None = None
        self._first: Tensor | None = None
        self._skipped: set[str] = set()
        if len(used) * 3 * STORED**2 <= KEPT_BYTES:
            self.kept, labels, self._skipped = load_whole(self.train, device, self.workers)
            self.batches = KeptBatches(self.kept, labels, run.batch, run.seed, team)
        else:
            self.batches = StreamedBatches(
                self.train, run.batch, run.seed, device, team, self.workers
            )

    def first(self, count: int) -> Tensor:
        if self._first is None or len(self._first) < count:
            self._first = next(self._train_middles(0, count, 1))
        return self._first[:count]

    def own_part(self) -> Iterable[Tensor]:
        rank, world = self.team.rank, self.team.world
        return _Again(lambda: self._train_middles(rank, None, world))

    def _train_middles(self, start: int, stop: int | None, step: int) -> Iterator[Tensor]:
        part = slice(start, stop, step)
        if self.kept is not None:
            return middles(self.kept[part])
        chosen = torch.arange(len(self.train))[part]
        return (images for images, _ in self._evaluated(self.train.select(chosen)))

    def _evaluated(self, listing: Listing) -> Iterator[Piece]:
        return evaluated(listing, self.device, self.workers, self._skipped)

    def validation(self) -> Iterable[Piece] | None:
        return self._evaluated(self.held) if len(self.held) else None

    def test(self) -> Iterable[Piece]:
        return _Again(lambda: self._evaluated(self.val))

    def skipped(self) -> int:
        return len(self._skipped | self.batches.skipped)
