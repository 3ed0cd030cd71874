"""SReLU's backward pass with what lies beside it in a network, as `inductor` joins them.

A batch normalisation before SReLU needs two sums of SReLU's input gradient in its own backward
pass. Where the kernel of that gradient takes them along, nobody has to read the gradient for them;
and if SReLU's input is the normalised tensor, or that and a residual, it need not be kept: it is
computed anew.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import reference


class Norm(NamedTuple):
    """A normalisation before SReLU: what it was given, and numbers of its channels."""

    z: Tensor
    mean: Tensor  # (C,), as are the others
    scale: Tensor | None = (
        None  # given where SReLU's input is (z - mean) * scale + shift + residual
    )
    shift: Tensor | None = None
    residual: Tensor | None = None  # like z; none is 0

    def check_lengths(self, dim: int) -> None:
        """Kernels must not read past the end."""
        expected, dtype = (self.z.shape[dim],), reference.compute_dtype(self.z)
        for number in (self.mean, self.scale, self.shift):
            if number is not None and (number.shape, number.dtype) != (expected, dtype):
                raise ValueError(
                    f"a number for each channel is {number.dtype} of shape {tuple(number.shape)}, "
                    f"expected {dtype}, {expected}"
                )

    def output(self, dim: int) -> Tensor:
        """SReLU's input, where it is made of the normalised tensor."""
        assert self.scale is not None
        assert self.shift is not None
        scale, shift = reference.broadcast(self._centred(dim), dim, self.scale, self.shift)
        x = (self._centred(dim) * scale + shift).to(self.z.dtype)
        return x if self.residual is None else x + self.residual

    def moments(self, grad_x: Tensor, dim: int) -> Tensor:
        """The sums of ``grad_x`` and of ``grad_x * (z - mean)`` in each channel: (2, C)."""
        g = grad_x.to(reference.compute_dtype(self.z))
        parts = (g, g * self._centred(dim))
        return torch.stack([reference.over_channels(part, dim) for part in parts])

    def _centred(self, dim: int) -> Tensor:
        z = self.z.to(reference.compute_dtype(self.z))
        return z - reference.broadcast(z, dim, self.mean)[0]
