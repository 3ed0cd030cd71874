"""Finds tensors without values that a network has kept from a run, and takes them away from it.

What modules hold is put back after a run (`state`). A network may keep tensors elsewhere too: in a
dict of its Python module, in what ``functools.cache`` remembers, in an object of other objects.
"""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor


class Leftovers:
    """The fake tensors of a network's runs, by weak references in ``made``."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Tensor]] = []

    def clear(self) -> None:
        """Takes those that are left out of every dict, list, set and cache of a function.

        A cache is filled again by the next run. Objects, whose attributes had another value before,
        are left alone.
        """
        torch.clear_autocast_cache()  # the weights that it has cast
        self._forget_dead()
        for generation in range(3):
            if self.made:  # most often by a cycle of references, and a young one is found soon
                gc.collect(generation)
                self._forget_dead()
        if self.made:
            _take_away(self._alive())
        self._forget_dead()

    def warn(self, network: str) -> None:
        """Warns if something still holds one."""
        self._forget_dead()
        if self.made:
            holders = {_name(h) for h in gc.get_referrers(*self._alive())} - {""}
            warnings.warn(
                f"{network} was run on tensors without values, and one of them is left in an "
                f"attribute or a variable of {' and '.join(sorted(holders)) or 'something'}, where "
                "it cannot be put back. If the network reads it, give it its value again first; "
                "kept in an attribute of a module or in a dict, it would have been put back",
                stacklevel=2,
            )

    def _alive(self) -> list[Tensor]:
        return [tensor for reference in self.made if (tensor := reference()) is not None]

    def _forget_dead(self) -> None:
        self.made = [reference for reference in self.made if reference() is not None]


def _take_away(values: Sequence[object], depth: int = 3) -> None:
    """Removes these from every container that holds one of them."""
    gone = {id(value) for value in values}
    further = []  # what holds them can itself only be taken away
    for holder in gc.get_referrers(*values):
        if holder is values or isinstance(holder, FrameType):
            continue
        if isinstance(holder, dict) and not _is_namespace(holder):
            for key in [key for key, item in holder.items() if id(item) in gone]:
                del holder[key]
        elif isinstance(holder, (list, deque)):
            kept = [item for item in holder if id(item) not in gone]
            holder.clear()
            holder.extend(kept)
        elif isinstance(holder, set):
            holder -= {item for item in holder if id(item) in gone}
        elif isinstance(holder, functools._lru_cache_wrapper):
            holder.cache_clear()
        elif isinstance(holder, tuple) or type(holder).__name__ == "_lru_list_elem":
            further.append(holder)
    if further and depth:
        _take_away(further, depth - 1)


def _is_namespace(holder: dict[Any, Any]) -> bool:
    """Whether these are the variables of a Python module or the attributes of something."""
    return "__name__" in holder or "__module__" in holder or bool(_owners(holder))


def _owners(namespace: dict[Any, Any]) -> list[object]:
    return [o for o in gc.get_referrers(namespace) if getattr(o, "__dict__", None) is namespace]


def _name(holder: object) -> str:
    """In words; empty for what holds tensors in passing."""
    if isinstance(holder, dict):
        names = holder.get("__qualname__"), holder.get("__name__"), *map(_name, _owners(holder))
        return next(filter(None, names), "")
    if isinstance(holder, (FrameType, list, tuple, weakref.ref)):
        return ""
    return type(holder).__qualname__
