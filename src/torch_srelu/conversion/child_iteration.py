"""Which modules are asked for all of their children in a run: a new unit would be one of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

_LISTS: dict[type[nn.Module], str] = {
    nn.Module: "named_children",  # also for children()
    nn.Sequential: "__iter__ __len__",
    nn.ModuleList: "__iter__ __len__",
    nn.ModuleDict: "__iter__ __len__ keys items values",
}
_BY_INDEX = {"_get_item_by_idx", "_get_abs_string_index"}  # of torch's containers


@contextmanager
def asked_for_children() -> Iterator[set[int]]:
    """Collects the identities of the modules whose children are listed or counted.

    Not by torch itself, which does so in ``train()``, and not for ``self[0]``, which stays the same
    whatever comes behind.
    """
    asked: set[int] = set()
    with ExitStack() as stack:
        for cls, names in _LISTS.items():
            for name in names.split():
                original = vars(cls)[name]
                stack.callback(setattr, cls, name, original)
                setattr(cls, name, _noting(original, asked))
        yield asked


def _noting(method: Callable, asked: set[int]) -> Callable:
    @functools.wraps(method)
    def note(self: nn.Module) -> Any:
        frame: Any = sys._getframe(1)
        if frame.f_code.co_name == "children":
            frame = frame.f_back
        indexed = frame.f_code.co_name in _BY_INDEX and frame.f_locals["idx"] >= 0
        if not indexed and frame.f_globals.get("__name__") != nn.Module.__module__:
            asked.add(id(self))
        return method(self)

    return note
