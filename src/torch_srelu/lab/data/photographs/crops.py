"""Random and central crops: which part of each image a network sees in an epoch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.seeds import generator

STORED_SIZE = 256  # height and width to which all images are resized first
CROP_SIZE = 224  # height and width of a crop
MARGIN = STORED_SIZE - CROP_SIZE

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


def central_crops(images: int) -> Crops:
    """The middle of each of ``images`` images, not mirrored."""
    middle = torch.full((images,), MARGIN // 2)
    return Crops(middle, middle, torch.zeros(images, dtype=torch.bool))


class SubtractMean:
    """Subtracts the mean color: images (N, 3, H, W) in float32.

    Always in channels_last, so that a network rounds alike wherever the images come from. The mean
    is copied to the device once: a captured step could not do so.
    """

    def __init__(self, device: torch.device) -> None:
        self.mean = torch.tensor(MEAN, device=device)[:, None, None]

    def __call__(self, images: Tensor) -> Tensor:
        return images.to(torch.float32, memory_format=torch.channels_last) - self.mean
