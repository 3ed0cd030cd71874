"""Fake tensors, which have shapes but no values, for the time of a run and no longer."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

from .channel_rules import tensors


class Fakes(FakeTensorMode):
    """While active, every tensor that is made is fake, and no real one is written to.

    By itself, FakeTensorMode computes with values what has real operands and numbers alone, such as
    ``steps.add_(1)``, and so would change the network.

    Args:
        made: Gets a weak reference to every tensor that a function makes.
    """

    def __init__(self, made: list[weakref.ref[Tensor]]) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._made = made

    def fake(self, tree: Any) -> Any:
        """The same with fake tensors, one for each real one."""
        return tree_map_only(Tensor, self._fake, tree)

    def _fake(self, x: Tensor) -> Tensor:
        return x if isinstance(x, FakeTensor) else self.from_tensor(x)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.is_mutable:
            args, kwargs = self.fake((args, kwargs or {}))
            return super().__torch_dispatch__(func, types, args, kwargs)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self._made += [weakref.ref(x) for x in tensors(out)]
        return out
