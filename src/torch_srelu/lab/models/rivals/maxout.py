"""Maxout (Goodfellow et al., 2013) and probabilistic maxout (Springenberg & Riedmiller, 2013).

A unit has k linear pieces. Maxout passes on the largest; probabilistic maxout draws one in training
and takes the expectation at test.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn

from ...runtime.seeds import DropoutStream, StochasticModule


def _pieces(z: Tensor, pieces: int) -> tuple[Tensor, ...]:
    """The pieces of all units: unit u of U has the channels u, U + u, 2 U + u, ..."""
    if z.shape[1] % pieces:
        raise ValueError(
            f"units of {pieces} pieces need a multiple of {pieces} channels, got {z.shape[1]}"
        )
    return z.chunk(pieces, dim=1)


class Maxout(nn.Module):
    """h_u = max_i z_iu over the k pieces of unit u.

    Args:
        pieces: The number k of pieces of a unit.

    Shape:
        Input (N, k U, ...); output (N, U, ...). Piece i of unit u is channel i U + u.

    Example:
        >>> Maxout(2)(torch.tensor([[1.0, -2.0, 0.5, 3.0]]))
        tensor([[1., 3.]])
    """

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, z: Tensor) -> Tensor:
        return reduce(torch.maximum, _pieces(z, self.pieces))

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}"


class ProbMaxout(StochasticModule):
    """Probabilistic maxout: piece i with probability p_i = softmax(sharpness * z)_i.

    In training h_u = z_iu for a drawn piece i; at test h_u = sum_i p_i z_iu. As the sharpness
    grows, it becomes maxout.

    Args:
        pieces: The number k of pieces of a unit.
        sharpness: The factor lambda in the softmax.
        stream: Where training draws from.

    Shape:
        As `Maxout`.

    Example:
        >>> unit = ProbMaxout(2, sharpness=1.0).eval()
        >>> unit(torch.tensor([[0.0, 1.0]]))  # e / (1 + e)
        tensor([[0.7311]])
    """

    def __init__(self, pieces: int, sharpness: float, stream: DropoutStream | None = None) -> None:
        super().__init__(stream)
        self.pieces, self.sharpness = pieces, sharpness

    def forward(self, z: Tensor) -> Tensor:
        values = torch.stack(_pieces(z, self.pieces), dim=-1)  # (N, U, ..., k)
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        chances = (self.sharpness * wide).softmax(-1)
        if self.training:
            return self.own_stream().draw(values, chances)
        return (chances * wide).sum(-1).to(z.dtype)

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}, sharpness={self.sharpness}"
