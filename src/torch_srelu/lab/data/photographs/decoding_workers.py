"""Worker processes that decode images; images that cannot be decoded are skipped and named."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..data_errors import DataError
from .crops import CROP_SIZE
from .decoding import UNREADABLE, cut, decode
from .listing import Listing

MAX_UNREADABLE_SHARE = 0.001  # of all images; more than that is no accident
_PREFETCHED = 4  # batches that each worker decodes in advance


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


class _CropDataset(Dataset):
    """Decodes crops of listed images; None where an image cannot be decoded."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    def __getitem__(self, crop: CropRequest) -> tuple[CropRequest, Tensor | None]:
        try:
            image = decode(self.listing.read(crop.image))
        except UNREADABLE:
            return crop, None
        return crop, cut(image, crop.top, crop.left, crop.mirrored, crop.size)


def _collate(
    samples: Sequence[tuple[CropRequest, Tensor | None]], *, listing: Listing, fill: bool
) -> DecodedBatch:
    unreadable = [listing.name(crop.image) for crop, pixels in samples if pixels is None]
    readable = [(crop.image, pixels) for crop, pixels in samples if pixels is not None]
    if not readable:
        size = samples[0][0].size
        nothing = torch.empty(0, 3, size, size, dtype=torch.uint8)
        return DecodedBatch(nothing, listing.labels[:0], unreadable)
    if fill:
        readable += [readable[i % len(readable)] for i in range(len(unreadable))]
    labels = listing.labels[[index for index, _ in readable]]
    return DecodedBatch(torch.stack([pixels for _, pixels in readable]), labels, unreadable)


class DecodingLoader:
    """Decodes batches of crops in worker processes, in the order of ``batches``.

    Args:
        listing: The images.
        batches: Iterated anew for each pass: the crops of each batch.
        workers: Worker processes; 0 decodes in this one.
        fill: Whether another image of the batch takes the place of a skipped one, so that batches
            keep their size; otherwise they become smaller, and an empty one is left out.
        pinned: Whether batches come in pinned memory.

    Attributes:
        unreadable: Names of the images that were skipped so far.
    """

    def __init__(
        self,
        listing: Listing,
        batches: Iterable[list[CropRequest]],
        workers: int,
        *,
        fill: bool,
        pinned: bool,
    ) -> None:
        self.listing, self.fill, self.unreadable = listing, fill, set[str]()
        self._loader = DataLoader(
            _CropDataset(listing),
            batch_sampler=batches,  # type: ignore[arg-type]  # crops in the place of indices
            num_workers=workers,
            collate_fn=partial(_collate, listing=listing, fill=fill),
            pin_memory=pinned,
            prefetch_factor=_PREFETCHED if workers else None,
        )

    def __iter__(self) -> Generator[DecodedBatch]:
        for batch in self._loader:
            self._skip(batch.unreadable)
            if len(batch.images):
                yield batch
            elif self.fill:
                raise DataError(
                    f"no image of a whole batch can be decoded, first {batch.unreadable[0]}: "
                    "replace or remove it"
                )

    def _skip(self, names: list[str]) -> None:
        """Notes images that cannot be decoded; too many of them are an error."""
        new = sorted(set(names) - self.unreadable)
        self.unreadable.update(new)
        allowed = max(1, int(MAX_UNREADABLE_SHARE * len(self.listing)))
        if len(self.unreadable) > allowed:
            shown = ", ".join(sorted(self.unreadable)[:5])
            raise DataError(
                f"{len(self.unreadable)} of {len(self.listing):,} images in {self.listing.root} "
                f"cannot be decoded, more than the {allowed} that are skipped: {shown}. Replace or "
                "remove them"
            )
        for name in new:
            warnings.warn(f"{name} cannot be decoded and is skipped", stacklevel=2)
