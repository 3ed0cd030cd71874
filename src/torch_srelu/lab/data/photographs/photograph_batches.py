"""Batches of photographs: decoded while the device trains, or once and kept on the device.

Both show the same images in the same order, cut and mirrored in the same way, and can go on from
any step of any epoch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import torch
from torch import Tensor

from ...runtime.distributed import ProcessGroup
from ..batches import Batches, epoch_order, whole_steps
from .crops import (
    MARGIN,
    SHOWN,
    STORED,
    Centre,
    Crops,
    central_crops,
    random_crops,
)
from .decoding_workers import Decoded, Reader, View
from .listing import Listing

_READ = 256  # images at a time, where the size of a batch does not matter


class _Views:
    """The views of this process in each step of an epoch, from a step on."""

    def __init__(self, images: int, batch: int, seed: int, share: slice) -> None:
        self.images, self.batch, self.seed, self.share = images, batch, seed, share
        self.epoch = self.step = 0

    def __iter__(self) -> Iterator[list[View]]:
        order = epoch_order(self.images, self.batch, self.seed, self.epoch)
        crops = random_crops(self.images, self.seed, self.epoch)
        for chosen in order[self.step :, self.share]:
            yield _views(chosen, crops)


def _views(chosen: Tensor, crops: Crops) -> list[View]:
    columns = (chosen, *crops.at(chosen))
    return [View(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]


class StreamedBatches:
    """Batches that workers decode in time; like `torch_srelu.lab.data.batches.Batches` to a step.

    `advance` waits for the next batch and sends it to the device, into tensors that stay in
    place; `next` is device work only and may be captured.

    Args:
        listing: The training images.
        batch: Images in a step, over all processes.
        seed: The run's seed.
        device: Where the network is.
        team: This process among those that share the batch.
        workers: Worker processes.
    """

    def __init__(
        self,
        listing: Listing,
        batch: int,
        seed: int,
        device: torch.device,
        team: ProcessGroup,
        workers: int,
    ) -> None:
        self.steps = whole_steps(len(listing), batch)
        share = team.share(batch)
        self._views = _Views(len(listing), batch, seed, share)
        self.reader = Reader(listing, self._views, workers, fill=True, pinned=device.type == "cuda")
        self._batches: Generator[Decoded] | None = None
        self._left = 0  # batches of the epoch that were not taken yet
        local = share.stop - share.start
        self.pixels = torch.zeros(local, 3, SHOWN, SHOWN, dtype=torch.uint8, device=device)
        self.labels = torch.zeros(local, dtype=torch.int64, device=device)
        self.centre = Centre(device)

    def begin(self, epoch: int, step: int = 0) -> None:
        """Goes to batch ``step`` of ``epoch``."""
        self.close()
        self._views.epoch, self._views.step = epoch, step
        self._batches, self._left = iter(self.reader), self.steps - step

    def close(self) -> None:
        """Ends the workers of this epoch.

        Left to the garbage collector, they would be waited for, five seconds each.
        """
        if self._batches is not None:
            self._batches.close()

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    @property
    def skipped(self) -> set[str]:
        """Names of the images that could not be decoded so far."""
        return self.reader.unreadable

    def rewind(self) -> None:
        """The batch that is there can be taken again and again."""

    def state(self) -> list[Tensor]:
        """Nothing: `next` only reads."""
        return []

    def advance(self) -> None:
        """Brings the next batch to the device."""
        assert self._batches is not None, "begin an epoch first"
        images, labels, _ = next(self._batches)
        self.pixels.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        self._left -= 1
        if not self._left:
            self.close()

    def next(self) -> tuple[Tensor, Tensor]:
        """The images (B, 3, 224, 224) that `advance` brought, and their classes (B,)."""
        return self.centre(self.pixels), self.labels


class KeptBatches(Batches):
    """Batches of images that are on the device already.

    Args:
        images: Whole images (N, 3, 256, 256), uint8, from `load_whole`.
        labels: Their classes (N,), int64.
        batch: Images in a step, over all processes.
        seed: The run's seed.
        team: This process among those that share the batch.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, batch: int, seed: int, team: ProcessGroup
    ) -> None:
        super().__init__(images, labels, batch, seed, flips=False, team=team)
        start, unmirrored = torch.zeros_like(labels), torch.zeros_like(labels, dtype=torch.bool)
        self.crops = Crops(start, start.clone(), unmirrored)
        self.centre = Centre(images.device)
        self.skipped: set[str] = set()  # images that cannot be decoded are not among these

    def begin(self, epoch: int, step: int = 0) -> None:
        super().begin(epoch, step)
        drawn = random_crops(len(self.images), self.seed, epoch)
        for kept, new in zip(self.crops, drawn, strict=True):
            kept.copy_(new)

    def next(self) -> tuple[Tensor, Tensor]:
        """The next images (B, 3, 224, 224) and their classes (B,)."""
        chosen = self.order.index_select(0, self.position)[0]  # (B,)
        self.position += 1
        x = shown(self.images, chosen, self.crops.at(chosen))
        return self.centre(x), self.labels.index_select(0, chosen)


def shown(images: Tensor, chosen: Tensor, crops: Crops) -> Tensor:
    """The ``chosen`` images (B,) of (N, 3, 256, 256), cut and mirrored: (B, 3, 224, 224)."""
    along = torch.arange(SHOWN, device=images.device)
    rows = crops.top[:, None] + along  # (B, 224)
    columns = torch.where(crops.mirrored[:, None], SHOWN - 1 - along, along) + crops.left[:, None]
    pixels = images.permute(0, 2, 3, 1)[chosen[:, None, None], rows[:, :, None], columns[:, None]]
    return pixels.permute(0, 3, 1, 2)


def load_whole(
    listing: Listing, device: torch.device, workers: int
) -> tuple[Tensor, Tensor, set[str]]:
    """All images (N, 3, 256, 256), uint8, in channels_last; classes; names that were skipped."""
    indices = range(len(listing))
    batches = [[View.whole(i) for i in indices[at : at + _READ]] for at in indices[::_READ]]
    reader = Reader(listing, batches, workers, fill=False, pinned=False)
    images = torch.empty(
        (len(listing), 3, STORED, STORED),
        dtype=torch.uint8,
        device=device,
        memory_format=torch.channels_last,
    )
    labels, done = [listing.labels[:0]], 0
    for pixels, numbers, _ in reader:
        images[done : done + len(pixels)].copy_(pixels)
        labels.append(numbers)
        done += len(pixels)
    return images[:done], torch.cat(labels).to(device), reader.unreadable


def middles(images: Tensor) -> Iterator[Tensor]:
    """The middle of every whole image (N, 3, 256, 256), a few at a time: (B, 3, 224, 224)."""
    centre, edge = Centre(images.device), MARGIN // 2
    for some in images.split(_READ):
        yield centre(some[:, :, edge : edge + SHOWN, edge : edge + SHOWN])


def evaluated(
    listing: Listing, device: torch.device, workers: int, skipped: set[str]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The middle of every image that can be decoded, in order: (B, 3, 224, 224) and (B,).

    The names of the others are added to ``skipped``.
    """
    middle = central_crops(len(listing))
    batches = [_views(chosen, middle) for chosen in torch.arange(len(listing)).split(_READ)]
    reader = Reader(listing, batches, workers, fill=False, pinned=device.type == "cuda")
    centre = Centre(device)
    for images, labels, _ in reader:
        yield centre(images.to(device)), labels.to(device)
    skipped |= reader.unreadable
