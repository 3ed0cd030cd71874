"""SReLU's backward pass with what lies beside it in a network, as `inductor` joins them.

A batch normalisation before SReLU needs two sums of SReLU's input gradient in its own backward
pass. Where the kernel of that gradient takes them along, nobody has to read the gradient for them;
and if SReLU's input is nothing but the normalised tensor, it need not be kept: it is computed anew.
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
    scale: Tensor | None = None  # given where SReLU's input is (z - mean) * scale + shift
    shift: Tensor | None = None

    def output(self, dim: int) -> Tensor:
        """SReLU's input, where it is the normalised tensor itself."""
        assert self.scale is not None
        assert self.shift is not None
        scale, shift = reference.broadcast(self._centred(dim), dim, self.scale, self.shift)
        return (self._centred(dim) * scale + shift).to(self.z.dtype)

    def moments(self, grad_x: Tensor, dim: int) -> Tensor:
        """The sums of ``grad_x`` and of ``grad_x * (z - mean)`` in each channel: (2, C)."""
        g = grad_x.to(reference.compute_dtype(self.z))
        parts = (g, g * self._centred(dim))
        return torch.stack([reference.over_channels(part, dim) for part in parts])

    def _centred(self, dim: int) -> Tensor:
        z = self.z.to(reference.compute_dtype(self.z))
        return z - reference.broadcast(z, dim, self.mean)[0]
