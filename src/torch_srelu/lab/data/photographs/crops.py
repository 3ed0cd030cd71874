"""Which part of which image an epoch shows, and how: a function of the seed alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.seeds import generator

STORED = 256  # images are brought to this size first, whatever their proportions
SHOWN = 224  # what a network sees of them
MARGIN = STORED - SHOWN

# Red, green and blue of an average ImageNet image: what is subtracted, and nothing else is done.
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
    """What each of ``images`` images looks like in ``epoch``.

    Example:
        >>> crops = random_crops(1000, seed=1, epoch=0)
        >>> int(crops.top.min()), int(crops.top.max())
        (0, 32)
    """
    draws = generator(seed, "augmentation", epoch)
    top, left = torch.randint(MARGIN + 1, (2, images), generator=draws)
    return Crops(top, left, torch.rand(images, generator=draws) < 0.5)


def central_crops(images: int) -> Crops:
    """The middle of each of ``images`` images, as it is."""
    middle = torch.full((images,), MARGIN // 2)
    return Crops(middle, middle, torch.zeros(images, dtype=torch.bool))


class Centre:
    """Subtracts the mean: images (N, 3, H, W) as a network sees them, in float32.

    Always in channels_last, so that a network rounds alike wherever the images come from. The mean
    lies on the device beforehand: a captured step cannot bring it there.
    """

    def __init__(self, device: torch.device) -> None:
        self.mean = torch.tensor(MEAN, device=device)[:, None, None]

    def __call__(self, images: Tensor) -> Tensor:
        return images.to(torch.float32, memory_format=torch.channels_last) - self.mean
