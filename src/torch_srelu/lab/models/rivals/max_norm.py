"""The constraint on weights that maxout networks are trained with."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def limit_norm(weight: Tensor, largest: float) -> None:
    """Shortens, in place, the weights into each output to an L2 norm of ``largest`` at most.

    Args:
        weight: (outputs, ...): kernels of a convolution, or rows of a dense layer.
        largest: The longest norm that stays as it is.

    Example:
        >>> weight = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
        >>> limit_norm(weight, 1.0)
        >>> weight
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    dims = tuple(range(1, weight.dim()))
    norm = torch.linalg.vector_norm(weight, dim=dims, keepdim=True)
    weight.mul_((largest / norm).clamp_max(1))  # a norm of 0 gives inf, and the factor 1
