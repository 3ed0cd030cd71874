"""Decodes images in worker processes; those that cannot be decoded are skipped and named."""

from __future__ import annotations

import io
import warnings
from collections.abc import Generator, Iterable
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..datasets import DataError
from .listing import Listing

STORED_SIZE = 256  # height and width to which all images are resized first
CROP_SIZE = 224  # height and width of a crop
MAX_UNREADABLE_SHARE = 0.001  # of all images; more than that is no accident
_PREFETCHED = 4  # batches that each worker decodes in advance
# What Pillow raises for files that are damaged, cut short, absurdly large or no images at all.
_UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)


def decode(raw: bytes) -> Tensor:
    """The image (3, 256, 256), uint8: red, green and blue, stretched to a square.

    Raises one of `_UNREADABLE` if it cannot be read to its end.
    """
    with Image.open(io.BytesIO(raw)) as image:
        # Large JPEGs are decoded at a fraction of their size.
        image.draft("RGB", (STORED_SIZE, STORED_SIZE))
        square = image.convert("RGB").resize((STORED_SIZE, STORED_SIZE), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


class CropRequest(NamedTuple):
    """Which part of which image to decode, and whether to mirror it."""

    image: int
    top: int = 0
    left: int = 0
    mirrored: bool = False
    size: int = CROP_SIZE


class DecodedBatch(NamedTuple):
    """A batch from a worker: pixels (B, 3, S, S), uint8; classes (B,); names that were skipped."""

    images: Tensor
    labels: Tensor
    unreadable: list[str]


class _DecodedBatches(Dataset):
    """Maps the crops of a batch to the decoded batch; see `decode_batches`."""

    def __init__(self, listing: Listing, fill: bool) -> None:
        self.listing, self.fill = listing, fill

    def __getitem__(self, crops: list[CropRequest]) -> DecodedBatch:
        indices, pixels, unreadable = [], [], []
        for index, top, left, mirrored, size in crops:
            try:
                image = decode(self.listing.read(index))
            except _UNREADABLE:
                unreadable.append(self.listing.name(index))
                continue
            part = image[:, top : top + size, left : left + size]
            pixels.append(part.flip(2) if mirrored else part)
            indices.append(index)
        if self.fill and pixels:
            places = [i % len(pixels) for i in range(len(crops))]
            pixels, indices = [pixels[i] for i in places], [indices[i] for i in places]
        images = torch.stack(pixels) if pixels else torch.empty(0, dtype=torch.uint8)
        return DecodedBatch(images, self.listing.labels[indices], unreadable)


def decode_batches(
    listing: Listing,
    batches: Iterable[list[CropRequest]],
    workers: int,
    skipped: set[str],
    *,
    fill: bool = False,
    pinned: bool = False,
) -> Generator[DecodedBatch]:
    """Decodes batches of crops in worker processes, in the order of ``batches``.

    Args:
        listing: The images.
        batches: The crops of each batch.
        workers: Worker processes; 0 decodes in this one.
        skipped: Gets the names of images that cannot be decoded; too many are an error.
        fill: Whether another image of the batch takes the place of a skipped one, so that batches
            keep their size; otherwise they become smaller, and an empty one is left out.
        pinned: Whether batches come in pinned memory.
    """
    loader = DataLoader(
        _DecodedBatches(listing, fill),
        sampler=batches,
        batch_size=None,
        num_workers=workers,
        pin_memory=pinned,
        prefetch_factor=_PREFETCHED if workers else None,
    )
    allowed = max(1, int(MAX_UNREADABLE_SHARE * len(listing)))
    for batch in loader:
        new = sorted(set(batch.unreadable) - skipped)
        skipped.update(new)
        if len(skipped) > allowed:
            shown = ", ".join(sorted(skipped)[:5])
            raise DataError(
                f"{len(skipped)} of {len(listing):,} images in {listing.root} cannot be decoded, "
                f"more than the {allowed} that are skipped: {shown}. Replace or remove them"
            )
        for name in new:
            warnings.warn(f"{name} cannot be decoded and is skipped", stacklevel=2)
        if len(batch.images):
            yield batch
        elif fill:
            raise DataError(
                f"no image of a whole batch can be decoded, first {batch.unreadable[0]}: "
                "replace or remove it"
            )
