"""Restores what a network holds after a trial run."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict, deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
_NOT_SEARCHED = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)

Contents = dict[int, tuple[Any, Any]]  # {identity: (container, a copy of it)}


class NetworkState:
    """The attributes of every module, their contents, and the tensors, until `restore`.

    Contents are plain containers, nested too, and the attributes of other objects that a module
    holds, such as a cache with a class of its own. Not what those hold in turn, which may be a
    trainer with all of its data.

    Args:
        model: The network.
        values: Whether to keep the values of parameters, buffers and tensors in attributes, which
            takes their memory once more. The storage that each tensor has, which assigning
            ``tensor.data`` replaces, is always kept.
    """

    def __init__(self, model: nn.Module, values: bool) -> None:
        self._contents: Contents = {}
        tensors = {id(t): t for t in itertools.chain(model.parameters(), model.buffers())}
        objects = _search([vars(m) for m in model.modules()], self._contents, tensors)
        own = set(tensors)  # those of other objects may be whole data sets: they are not copied
        _search([vars(value) for value in objects], self._contents, tensors)
        self._tensors = [
            (t, t.data, t.detach().clone() if values and key in own else None)
            for key, t in tensors.items()
            if not is_lazy(t)
        ]

    def restore(self) -> None:
        """Restores everything; what has not changed is not touched."""
        for container, before in self._contents.values():
            if not _same(container, before):
                container.clear()
                (container.extend if hasattr(container, "extend") else container.update)(before)
        for tensor, data, value in self._tensors:
            tensor.data = data
            if value is not None:
                # Through data: autograd need not know. In inference mode: tensors that were made
                # in it can be written to in no other.
                with torch.inference_mode():
                    data.copy_(value)


def tensors_held_by(values: list[Any]) -> list[Tensor]:
    """The tensors in these values, as far as `NetworkState` searches."""
    contents: Contents = {}
    tensors: dict[int, Tensor] = {}
    objects = _search(values, contents, tensors)
    _search([vars(value) for value in objects], contents, tensors)
    return list(tensors.values())


def _search(values: list[Any], contents: Contents, tensors: dict[int, Tensor]) -> list[object]:
    """Adds the containers and the tensors in these values, and returns the other objects."""
    objects = []
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
        elif not isinstance(value, _NOT_SEARCHED) and hasattr(value, "__dict__"):
            objects.append(value)
    return objects


def _same(container: Any, before: Any) -> bool:
    """Whether a container holds the same objects in the same order."""
    if isinstance(container, dict):
        container, before = ([*d, *d.values()] for d in (container, before))
    return len(container) == len(before) and all(
        a is b for a, b in zip(container, before, strict=True)
    )
