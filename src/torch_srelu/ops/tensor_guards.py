"""Whether tensors are as others were: the question that torch.compile asks before it reuses code.

Its guards answer it in C++ and in one go, for class, dispatch keys (device, lazy signs, wrappers),
dtype, sizes, strides and requires_grad, in a fraction of the time that attributes would take.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

# Private to torch: where it moved or changed, nothing is remembered.
_STATIC = {"dynamic_dims_sizes": None, "dynamic_dims_strides": None}
TensorGuards: Any
try:
    from torch._C._dynamo.guards import TensorGuards  # type: ignore[no-redef]

    TensorGuards(torch.empty(0, device="cpu"), **_STATIC)
except (ImportError, AttributeError, TypeError):
    TensorGuards = None

_ORDINARY = frozenset({Tensor, torch.nn.Parameter})


class Guard(Protocol):
    """Knows how some tensors were."""

    def check(self, *tensors: object) -> bool:
        """Whether these are all alike."""
        ...


def guard(*tensors: Tensor) -> Guard | None:
    """A guard for tensors like these; None if there can be none."""
    if TensorGuards is None:
        return None
    made = TensorGuards(*tensors, **_STATIC)
    return made if made.check(*tensors) else None  # never true if one of them comes twice


def ordinary(*tensors: Tensor) -> bool:
    """Whether the tensors are of no class that wants to see what is done with them."""
    return _ORDINARY.issuperset(map(type, tensors))


def plain(*tensors: Tensor) -> bool:
    """Whether they are ordinary, and their memory holds their values."""
    return ordinary(*tensors) and all(
        # Without storage are tensors that stand for others, whose classes do not tell.
        torch._C._has_storage(t) and not (t.is_neg() or t._is_zerotensor() or t.is_meta)
        for t in tensors
    )
