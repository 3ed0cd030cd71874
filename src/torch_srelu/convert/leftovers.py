"""Finds tensors without values that a network has kept from a run, and takes them away from it.

What modules hold is put back after a run (`state`). A network may keep tensors elsewhere too: in a
dict of its Python module, in what ``functools.cache`` remembers, in an object of other objects.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections import deque
from types import FrameType
from typing import Any

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
        self._forget_dead()
        for generation in range(3):
            if self.made:  # most often by a cycle of references, and a young one is found soon
                gc.collect(generation)
                self._forget_dead()
        for reference in self.made:
            tensor = reference()
            if tensor is not None:  # not gone with another one
                _take_away(tensor)
            del tensor
        self._forget_dead()

    def check(self, network: str) -> None:
        """Raises ValueError if something still holds one."""
        self._forget_dead()
        if self.made:
            holders = {_name(h) for r in self.made for h in gc.get_referrers(r())} - {""}
            raise ValueError(
                f"{network} was run on tensors without values, and one of them is left in an "
                f"attribute or a variable of {' and '.join(sorted(holders)) or 'something'}, which "
                "convert cannot put back. Give it its value again before you use the network; "
                "kept in an attribute of a module or in a dict, it is put back"
            )

    def _forget_dead(self) -> None:
        self.made = [reference for reference in self.made if reference() is not None]


def _take_away(value: object) -> None:
    """Removes ``value`` from every container that holds it."""
    holders = [h for h in gc.get_referrers(value) if not isinstance(h, FrameType)]
    for holder in holders:
        if isinstance(holder, dict) and not _is_namespace(holder):
            for key in [key for key, item in holder.items() if item is value]:
                del holder[key]
        elif isinstance(holder, (list, deque)):
            kept = [item for item in holder if item is not value]
            holder.clear()
            holder.extend(kept)
        elif isinstance(holder, set):
            holder.discard(value)
        elif isinstance(holder, functools._lru_cache_wrapper):
            holder.cache_clear()
        elif isinstance(holder, tuple) or type(holder).__name__ == "_lru_list_elem":
            _take_away(holder)


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
    if isinstance(holder, (FrameType, list, weakref.ref)):
        return ""
    return type(holder).__qualname__
