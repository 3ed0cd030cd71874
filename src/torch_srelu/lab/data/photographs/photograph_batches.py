"""Batches of photographs: decoded while the device trains, or once and kept on the device.

Both give the same images in the same order, cut and mirrored in the same way, and can go on from
any step of any epoch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.distributed import ProcessGroup
from ...runtime.seeds import generator
from ..batches import TensorBatches, TrainingBatches, epoch_order, whole_steps
from .decoding_workers import (
    CROP_SIZE,
    STORED_SIZE,
    CropRequest,
    DecodedBatch,
    decode_batches,
)
from .listing import Listing

MARGIN = STORED_SIZE - CROP_SIZE
_BATCH = 256  # images at a time, where the size of a batch does not matter
# Red, green and blue of an average ImageNet image, subtracted; nothing else is done to pixels.
MEAN = (123.0, 117.0, 104.0)


class Crops(NamedTuple):
    """Where each image is cut, and whether it is mirrored; all (N,)."""

    top: Tensor
    left: Tensor
    mirrored: Tensor

    def at(self, chosen: Tensor) -> Crops:
        """The crops of the ``chosen`` images."""
        return Crops(*(values[chosen] for values in self))


def random_crops(images: int, seed: int, epoch: int) -> Crops:
    """The crop of each of ``images`` images in ``epoch``: depends on the seed and the epoch alone.

    Example:
        >>> crops = random_crops(1000, seed=1, epoch=0)
        >>> int(crops.top.min()), int(crops.top.max())
        (0, 32)
    """
    draws = generator(seed, "augmentation", epoch)
    top, left = torch.randint(MARGIN + 1, (2, images), generator=draws)
    return Crops(top, left, torch.rand(images, generator=draws) < 0.5)


class SubtractMean:
    """Subtracts the mean color: images (N, 3, H, W) in float32.

    Always in channels_last, so that a network rounds alike wherever the images come from. The mean
    is copied to the device once: a captured step could not do so.
    """

    def __init__(self, device: torch.device) -> None:
        self.mean = torch.tensor(MEAN, device=device)[:, None, None]

    def __call__(self, images: Tensor) -> Tensor:
        return images.to(torch.float32, memory_format=torch.channels_last) - self.mean


class StreamedBatches(TrainingBatches):
    """Batches that worker processes decode while the device trains.

    `advance` waits for the next batch and copies it to the device, into tensors that stay in
    place; `next` is device work only and may be captured.

    Args:
        listing: The training images.
        batch: Images in a step, over all processes.
        seed: The run's seed.
        device: Where the network is.
        group: The processes that share the batch.
        workers: Worker processes.
    """

    def __init__(
        self,
        listing: Listing,
        batch: int,
        seed: int,
        device: torch.device,
        group: ProcessGroup,
        workers: int,
    ) -> None:
        self.listing, self.batch, self.seed, self.workers = listing, batch, seed, workers
        self.steps, self.device = whole_steps(len(listing), batch), device
        self.share, self.skipped = group.share(batch), set[str]()
        self._batches: Generator[DecodedBatch] | None = None
        self._left = 0  # batches of the epoch that were not taken yet
        local = self.share.stop - self.share.start
        shape = (local, 3, CROP_SIZE, CROP_SIZE)
        self.pixels = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.labels = torch.zeros(local, dtype=torch.int64, device=device)
        self.subtract_mean = SubtractMean(device)

    def begin(self, epoch: int, step: int = 0) -> None:
        self.close()
        order = epoch_order(len(self.listing), self.batch, self.seed, epoch)
        crops = random_crops(len(self.listing), self.seed, epoch)
        steps = (torch.stack((i, *crops.at(i)), 1).tolist() for i in order[step:, self.share])
        requests = ([CropRequest(*row) for row in rows] for rows in steps)
        pinned = self.device.type == "cuda"
        self._batches = decode_batches(
            self.listing, requests, self.workers, self.skipped, fill=True, pinned=pinned
        )
        self._left = self.steps - step

    def close(self) -> None:
        """Ends the workers of this epoch.

        The garbage collector would wait for them, five seconds each.
        """
        if self._batches is not None:
            self._batches.close()

    def advance(self) -> None:
        assert self._batches is not None, "begin an epoch first"
        images, labels, _ = next(self._batches)
        self.pixels.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        self._left -= 1
        if not self._left:
            self.close()

    def next(self) -> tuple[Tensor, Tensor]:
        """The images (B, 3, 224, 224) that `advance` brought, and their classes (B,)."""
        return self.subtract_mean(self.pixels), self.labels


class ResidentBatches(TensorBatches):
    """Batches of photographs that are decoded and on the device.

    Args:
        images: Whole images (N, 3, 256, 256), uint8, from `decode_all`.
        labels: Their classes (N,), int64.
        batch: Images in a step, over all processes.
        seed: The run's seed.
        group: The processes that share the batch.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, batch: int, seed: int, group: ProcessGroup
    ) -> None:
        super().__init__(images, labels, batch, seed, flips=False, group=group)
        start, unmirrored = torch.zeros_like(labels), torch.zeros_like(labels, dtype=torch.bool)
        self.crops = Crops(start, start.clone(), unmirrored)
        self.subtract_mean = SubtractMean(images.device)

    def begin(self, epoch: int, step: int = 0) -> None:
        super().begin(epoch, step)
        drawn = random_crops(len(self.images), self.seed, epoch)
        for values, new in zip(self.crops, drawn, strict=True):
            values.copy_(new)

    def next(self) -> tuple[Tensor, Tensor]:
        """The next images (B, 3, 224, 224) and their classes (B,)."""
        chosen = self._next_indices()
        x = _cropped(self.images, chosen, self.crops.at(chosen))
        return self.subtract_mean(x), self.labels.index_select(0, chosen)


def _cropped(images: Tensor, chosen: Tensor, crops: Crops) -> Tensor:
    """The ``chosen`` images (B,) of (N, 3, 256, 256), cut and mirrored: (B, 3, 224, 224)."""
    along = torch.arange(CROP_SIZE, device=images.device)
    rows = crops.top[:, None] + along  # (B, 224)
    columns = torch.where(crops.mirrored[:, None], CROP_SIZE - 1 - along, along)
    columns = columns + crops.left[:, None]
    pixels = images.permute(0, 2, 3, 1)[chosen[:, None, None], rows[:, :, None], columns[:, None]]
    return pixels.permute(0, 3, 1, 2)


def _all_images(listing: Listing, crop: CropRequest) -> list[list[CropRequest]]:
    """The same crop of every image."""
    requests = [crop._replace(image=i) for i in range(len(listing))]
    return [requests[start : start + _BATCH] for start in range(0, len(requests), _BATCH)]


def decode_all(
    listing: Listing, device: torch.device, workers: int
) -> tuple[Tensor, Tensor, set[str]]:
    """All images (N, 3, 256, 256), uint8, in channels_last; classes; names that were skipped."""
    batches = _all_images(listing, CropRequest(0, size=STORED_SIZE))
    shape = (len(listing), 3, STORED_SIZE, STORED_SIZE)
    layout = torch.channels_last
    images = torch.empty(shape, dtype=torch.uint8, device=device, memory_format=layout)
    labels, done, skipped = [listing.labels[:0]], 0, set[str]()
    for pixels, numbers, _ in decode_batches(listing, batches, workers, skipped):
        images[done : done + len(pixels)].copy_(pixels)
        labels.append(numbers)
        done += len(pixels)
    return images[:done], torch.cat(labels).to(device), skipped


def center_crops(images: Tensor) -> Iterator[Tensor]:
    """The middle of every whole image (N, 3, 256, 256), a few at a time: (B, 3, 224, 224)."""
    subtract_mean, middle = SubtractMean(images.device), slice(MARGIN // 2, MARGIN // 2 + CROP_SIZE)
    for some in images.split(_BATCH):
        yield subtract_mean(some[:, :, middle, middle])


def decode_center_crops(
    listing: Listing, device: torch.device, workers: int, skipped: set[str]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The middle of every image that can be decoded, in order: (B, 3, 224, 224) and (B,).

    The names of the others are added to ``skipped``.
    """
    batches = _all_images(listing, CropRequest(0, MARGIN // 2, MARGIN // 2))
    subtract_mean, unreadable, pinned = SubtractMean(device), set[str](), device.type == "cuda"
    for images, labels, _ in decode_batches(listing, batches, workers, unreadable, pinned=pinned):
        yield subtract_mean(images.to(device)), labels.to(device)
    skipped |= unreadable
