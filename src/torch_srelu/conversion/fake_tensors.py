"""The fake tensors of trial runs, which have shapes but no values."""

from __future__ import annotations

import gc
import warnings
from collections import deque
from collections.abc import Sequence
from types import CellType, FrameType
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .._torch_compat import FakeTensorMode, tree_map_only
from .channel_rules import tensors_in

_Mode: Any = object if FakeTensorMode is None else FakeTensorMode


class TrackedFakeMode(_Mode):
    """While active, every new tensor is a fake tensor, and no real tensor is written to.

    By itself, FakeTensorMode computes with values where all operands are real tensors or numbers,
    as in ``steps.add_(1)``, and so would change the network.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._made = WeakTensorKeyDictionary()  # to nothing: the tensors that still exist

    def fake(self, tree: Any) -> Any:
        """Replaces the tensors in nested containers by fake tensors, one for each."""
        return tree_map_only(
            Tensor, lambda x: x if self.is_our_fake(x) else self.from_tensor(x), tree
        )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.is_mutable:
            args, kwargs = self.fake((args, kwargs or {}))
            return super().__torch_dispatch__(func, types, args, kwargs)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self._made.update(dict.fromkeys(tensors_in(out)))
        return out

    def warn_of_kept_tensors(self, network: str) -> None:
        """Warns if something still holds a fake tensor, such as a global cache of the network."""
        for generation in range(3):
            if self._made:  # most often by a cycle of references, which the first soon finds
                gc.collect(generation)
        holders = _holders(list(self._made))
        if holders:
            warnings.warn(
                f"the trial run of {network} has left tensors without values in "
                f"{', '.join(sorted(holders))}: clear it before you use the network (that of a "
                "cached function by its cache_clear()). Only the attributes of modules, and of "
                "objects in them, are restored after a trial run",
                stacklevel=4,  # the caller of `convert`
            )


def new_fake_mode() -> TrackedFakeMode | None:
    """A mode for trial runs; None where torch has none, and they are on real tensors."""
    return None if FakeTensorMode is None else TrackedFakeMode()


def _holders(values: Sequence[object], depth: int = 4) -> set[str]:
    """The names of what holds one of ``values``, itself or in containers; not of frames."""
    names, containers = set(), []
    identities = {id(value) for value in values}
    for holder in gc.get_referrers(*values) if values else ():
        if isinstance(holder, dict) and "__name__" in holder:  # the variables of a Python module
            variables = [key for key, value in holder.items() if id(value) in identities]
            names |= {f"{holder['__name__']}.{variable}" for variable in variables}
        elif isinstance(holder, (dict, list, tuple, set, deque, CellType)) or (
            type(holder).__name__ == "_lru_list_elem"  # in functools.lru_cache
        ):
            containers.append(holder)
        elif not isinstance(holder, FrameType):
            names.add(getattr(holder, "__qualname__", type(holder).__qualname__))
    return names | _holders(containers, depth - 1) if depth else names
