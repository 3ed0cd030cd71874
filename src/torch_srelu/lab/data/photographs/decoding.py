"""Decodes image files to uint8 tensors."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .crops import STORED_SIZE

# What Pillow raises for files that are damaged, cut short, absurdly large or no images at all.
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)


def decode(raw: bytes) -> Tensor:
    """The image (3, 256, 256), uint8: red, green and blue, stretched to a square.

    Raises one of `UNREADABLE` if it cannot be read to its end.
    """
    with Image.open(io.BytesIO(raw)) as image:
        # Large JPEGs are decoded at a fraction of their size.
        image.draft("RGB", (STORED_SIZE, STORED_SIZE))
        square = image.convert("RGB").resize((STORED_SIZE, STORED_SIZE), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def cut(image: Tensor, top: int, left: int, mirrored: bool, size: int) -> Tensor:
    """The part (3, size, size) of an image that begins at ``top`` and ``left``.

    Example:
        >>> cut(torch.arange(9).view(1, 3, 3), top=1, left=0, mirrored=True, size=2)
        tensor([[[4, 3],
                 [7, 6]]])
    """
    part = image[:, top : top + size, left : left + size]
    return part.flip(2) if mirrored else part
