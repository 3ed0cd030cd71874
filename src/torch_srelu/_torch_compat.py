"""Every private name of torch, functorch, Inductor and Triton that the package uses.

Each has a fallback, which may be slower: without a private name no import fails and no result is
wrong.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

# ---- trial runs ----

# None: networks are run on real tensors, which costs time and memory.
FakeTensorMode: Any
try:
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError:
    FakeTensorMode = None


def compiler_loaded() -> bool:
    """Whether torch.compile may have compiled something; True where that cannot be known."""
    name = "torch._dynamo"
    return name in sys.modules or importlib.util.find_spec(name) is None


# ---- nested containers; without torch's functions: of dicts, lists and tuples ----

try:
    from torch.utils._pytree import tree_leaves, tree_map_only  # type: ignore[assignment]
except ImportError:

    def tree_leaves(tree: Any) -> list[Any]:
        """The values in nested containers."""
        if not isinstance(tree, (dict, list, tuple)):
            return [tree]
        items = tree.values() if isinstance(tree, dict) else tree
        return [leaf for item in items for leaf in tree_leaves(item)]

    def tree_map_only(kind: type, function: Callable[[Any], Any], tree: Any) -> Any:
        """The same containers with ``function`` applied to the values of one type."""

        def mapped(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: mapped(item) for key, item in value.items()}
            if isinstance(value, tuple) and hasattr(value, "_fields"):
                return type(value)(*map(mapped, value))
            if isinstance(value, (list, tuple)):
                return type(value)(map(mapped, value))
            return function(value) if isinstance(value, kind) else value

        return mapped(tree)
