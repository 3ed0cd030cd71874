"""What a network holds, taken before a run and put back after it."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
_NOT_HELPERS = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)

Contents = dict[int, tuple[Any, Any]]  # {identity: (container, what was in it)}


class State:
    """The attributes of every module, what is in them, and the tensors, until `restore`.

    What is in them: plain containers, nested too, and the attributes of other objects that a module
    holds, such as a cache with a class of its own. Not what those hold in turn, which may be a
    trainer with all of its data.

    Args:
        model: The network.
        values: Whether to keep the values of tensors, which takes their memory once more. Where
            tensors are, which are cut and replaced through ``tensor.data``, is always kept.
    """

    def __init__(self, model: nn.Module, values: bool) -> None:
        self._contents: Contents = {}
        tensors = {id(t): t for t in itertools.chain(model.parameters(), model.buffers())}
        helpers = _look_into([vars(m) for m in model.modules()], self._contents, tensors)
        own = set(tensors)  # those of other objects may be whole data sets: they are not copied
        _look_into([vars(helper) for helper in helpers], self._contents, tensors)
        self._tensors = [
            (t, t.data, t.detach().clone() if values and key in own else None)
            for key, t in tensors.items()
            if not is_lazy(t)
        ]

    def restore(self) -> None:
        """Puts everything back; what has not changed is not touched."""
        for container, before in self._contents.values():
            if not _same(_flat(container), _flat(before)):
                container.clear()
                (container.extend if hasattr(container, "extend") else container.update)(before)
        for tensor, data, value in self._tensors:
            tensor.data = data
            if value is not None:
                # Through data: autograd, which saw no change, need not know. In inference mode:
                # tensors that were made in it can be written to in no other.
                with torch.inference_mode():
                    data.copy_(value)


def tensors_in(values: list[Any]) -> list[Tensor]:
    """The tensors in these values, as far as `State` looks."""
    contents: Contents = {}
    tensors: dict[int, Tensor] = {}
    helpers = _look_into(values, contents, tensors)
    _look_into([vars(helper) for helper in helpers], contents, tensors)
    return list(tensors.values())


def _look_into(values: list[Any], contents: Contents, tensors: dict[int, Tensor]) -> list[object]:
    """Notes the containers and the tensors in these values, and returns the objects in them."""
    helpers = []
    while values:
        value = values.pop()
        if isinstance(value, Tensor):
            tensors[id(value)] = value
        elif isinstance(value, tuple):
            values += value
        elif type(value) in _CONTAINERS:
            if id(value) not in contents:
                contents[id(value)] = value, value.copy()
                values += value.values() if isinstance(value, dict) else value
        elif not isinstance(value, _NOT_HELPERS) and hasattr(value, "__dict__"):
            helpers.append(value)
    return helpers


def _flat(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else [*container]


def _same(now: Iterable[Any], before: Iterable[Any]) -> bool:
    pairs = itertools.zip_longest(now, before, fillvalue=object())
    return all(a is b for a, b in pairs)
