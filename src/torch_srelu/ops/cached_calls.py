"""What is remembered of eager calls of one kind: what all executions share of it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .reference import compute_dtype
from .tensor_guards import Guard, guard, plain


class Call:
    """SReLU of tensors of one kind: what shapes, strides, dtypes and devices decide.

    An execution adds ``forward`` and ``backward``, which take tensors as they are.

    Args:
        x: One of the dense tensors.
        params: Its parameters, contiguous.
    """

    taught = 0  # passes of calls of this kind that native/eager.cpp was told of

    def __init__(self, x: Tensor, params: Sequence[Tensor]) -> None:
        self._like_x = _looks(x)
        self._like_param = (params[0].shape, (1,), compute_dtype(x), x.device)
        self._taken: Guard | None = None

    def launches(self, backward: bool) -> tuple | None:
        """What native/eager.cpp is to be told; None: nothing, or nothing yet."""
        return None

    def takes(self, *tensors: Tensor) -> bool:
        """Whether ``backward`` can have these: a gradient, the input, its parameters and bias.

        All are looked at again: they can change behind autograd's back (``p.data = ...``).
        """
        if self._taken is not None and self._taken.check(*tensors):
            return True
        if not (plain(*tensors) and self.fits(*tensors)):
            return False
        self._taken = guard(*tensors)
        return True

    def fits(self, grad: Tensor, x: Tensor, *channels: Tensor) -> bool:
        """Whether all lie in memory as they should, and the results need no conversion."""
        return all(_looks(t) == self._like_x for t in (grad, x)) and all(
            _looks(t) == self._like_param for t in channels
        )


def _looks(t: Tensor) -> tuple:
    return t.shape, t.stride(), t.dtype, t.device
