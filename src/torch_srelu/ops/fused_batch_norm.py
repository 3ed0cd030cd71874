"""A batch normalisation before SReLU, whose sums SReLU's backward pass computes as well.

The backward pass of a batch normalisation needs two sums of SReLU's input gradient. Where the
kernel of that gradient computes them too, nothing has to read the gradient for them; and if SReLU's
input is the normalised tensor, or that and a residual, it is recomputed instead of kept.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import reference


class BatchNormInput(NamedTuple):
    """What a normalisation before SReLU was given: its input ``z`` and (C,) values.

    SReLU's input is ``(z - mean) * scale + shift + residual`` where these are given.
    """

    z: Tensor
    mean: Tensor
    scale: Tensor | None = None
    shift: Tensor | None = None
    residual: Tensor | None = None  # like z; none is 0

    def check_lengths(self, dim: int) -> None:
        """Raises ValueError if a kernel would read past the end."""
        expected, dtype = (self.z.shape[dim],), reference.compute_dtype(self.z)
        for value in (self.mean, self.scale, self.shift):
            if value is not None and (value.shape, value.dtype) != (expected, dtype):
                raise ValueError(
                    f"a value per channel is {value.dtype} of shape {tuple(value.shape)}, "
                    f"expected {dtype}, {expected}"
                )

    def output(self, dim: int) -> Tensor:
        """SReLU's input, where it is made of the normalised tensor."""
        assert self.scale is not None
        assert self.shift is not None
        scale, shift = reference.broadcast(self._centred(dim), dim, self.scale, self.shift)
        x = (self._centred(dim) * scale + shift).to(self.z.dtype)
        return x if self.residual is None else x + self.residual

    def sums(self, grad_x: Tensor, dim: int) -> Tensor:
        """The sums of ``grad_x`` and of ``grad_x * (z - mean)`` in each channel: (2, C)."""
        g = grad_x.to(reference.compute_dtype(self.z))
        parts = (g, g * self._centred(dim))
        return torch.stack([reference.over_channels(part, dim) for part in parts])

    def _centred(self, dim: int) -> Tensor:
        z = self.z.to(reference.compute_dtype(self.z))
        return z - reference.broadcast(z, dim, self.mean)[0]
