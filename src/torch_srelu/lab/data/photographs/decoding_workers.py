"""Worker processes that decode images, and what happens to images they cannot decode."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..data_errors import DataError
from .crops import SHOWN, STORED
from .decoding import UNREADABLE, cut, decode
from .listing import Listing

UNREADABLE_SHARE = 0.001  # of all images; more than that is no accident
_PREFETCHED = 4  # batches that each worker has in hand


class View(NamedTuple):
    """One image as it is to be shown: cut and perhaps mirrored, or whole."""

    image: int
    top: int = 0
    left: int = 0
    mirrored: bool = False
    size: int = SHOWN

    @classmethod
    def whole(cls, image: int) -> View:
        """The image (3, 256, 256) as it is stored."""
        return cls(image, size=STORED)


class Decoded(NamedTuple):
    """A batch from a worker: pixels (B, 3, S, S), uint8; classes (B,); names that were skipped."""

    images: Tensor
    labels: Tensor
    unreadable: list[str]


class _Photographs(Dataset):
    """Decodes views of a listing; None where an image cannot be decoded."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    def __getitem__(self, view: View) -> tuple[View, Tensor | None]:
        try:
            image = decode(self.listing.read(view.image))
        except UNREADABLE:
            return view, None
        return view, cut(image, view.top, view.left, view.mirrored, view.size)


def _collate(
    samples: Sequence[tuple[View, Tensor | None]], *, listing: Listing, fill: bool
) -> Decoded:
    unreadable = [listing.name(view.image) for view, image in samples if image is None]
    readable = [(view.image, image) for view, image in samples if image is not None]
    if not readable:
        size = samples[0][0].size
        nothing = torch.empty(0, 3, size, size, dtype=torch.uint8)
        return Decoded(nothing, listing.labels[:0], unreadable)
    if fill:  # an image that is skipped leaves its place to another one of the batch
        readable += [readable[i % len(readable)] for i in range(len(unreadable))]
    labels = listing.labels[[index for index, _ in readable]]
    return Decoded(torch.stack([image for _, image in readable]), labels, unreadable)


class Reader:
    """Decodes batches of views in worker processes, in the order of ``batches``.

    Args:
        listing: The images.
        batches: Iterated anew for each pass: the views of each batch.
        workers: Worker processes; 0 decodes in this one.
        fill: Whether a skipped image's place is taken by another of its batch, so that batches
            keep their size; otherwise they become smaller, and one of which nothing is left is
            left out.
        pinned: Whether batches come in memory that a GPU reads fast.

    Attributes:
        unreadable: Names of the images that were skipped so far.
    """

    def __init__(
        self,
        listing: Listing,
        batches: Iterable[list[View]],
        workers: int,
        *,
        fill: bool,
        pinned: bool,
    ) -> None:
        self.listing, self.fill, self.unreadable = listing, fill, set[str]()
        self._loader = DataLoader(
            _Photographs(listing),
            batch_sampler=batches,  # type: ignore[arg-type]  # views in the place of numbers
            num_workers=workers,
            collate_fn=partial(_collate, listing=listing, fill=fill),
            pin_memory=pinned,
            prefetch_factor=_PREFETCHED if workers else None,
        )

    def __iter__(self) -> Generator[Decoded]:
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
        """Remembers images that cannot be decoded; too many of them are an error."""
        new = sorted(set(names) - self.unreadable)
        self.unreadable.update(new)
        allowed = max(1, int(UNREADABLE_SHARE * len(self.listing)))
        if len(self.unreadable) > allowed:
            shown = ", ".join(sorted(self.unreadable)[:5])
            raise DataError(
                f"{len(self.unreadable)} of {len(self.listing):,} images in {self.listing.root} "
                f"cannot be decoded, more than the {allowed} that are skipped: {shown}. Replace or "
                "remove them"
            )
        for name in new:
            warnings.warn(f"{name} cannot be decoded and is skipped", stacklevel=2)
