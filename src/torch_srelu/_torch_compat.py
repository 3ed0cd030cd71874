"""Every private name of torch, functorch, Inductor and Triton in use, each with a fallback.

A fallback may be slower; without a private name no import fails and no result is wrong.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

# ---- modules ----

CONVOLUTIONS: Any = getattr(nn.modules.conv, "_ConvNd", None) or (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
NORMS: Any = getattr(nn.modules.batchnorm, "_NormBase", None) or (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)


def own_parameters(module: nn.Module) -> Mapping[str, Any]:
    """The parameters registered in ``module`` itself, read faster than as attributes.

    Without a way to read them, none: then they are read as attributes.
    """
    return getattr(module, "_parameters", {})


def initialize_lazy(module: Any, x: Tensor) -> None:
    """Gives a lazy module its parameters, for inputs shaped as ``x``.

    Without a way to do that alone, by a forward pass of zeros.
    """
    infer = getattr(module, "_infer_parameters", None)
    if infer is not None:
        infer(module, (x,))
        return
    with torch.no_grad():
        module(torch.zeros(x.shape, device=next(module.parameters()).device))


def uncompiled(model: nn.Module) -> nn.Module:
    """The module inside the wrapper of torch.compile; ``model`` if there is no such wrapper."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def uncompiled_name(name: str) -> str:
    """The name of a module without the wrappers of torch.compile."""
    return name.replace("_orig_mod.", "")


def force_eager() -> contextlib.AbstractContextManager[Any]:
    """Switches torch.compile off, unless it was never imported, which would take seconds.

    Without a way to know, it is imported.
    """
    if "torch._dynamo" not in sys.modules and importlib.util.find_spec("torch._dynamo"):
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")  # type: ignore[return-value]


# ---- data ----


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """``function`` of every leaf; without torch's pytrees, of dicts, lists and tuples alone."""
    try:
        from torch.utils._pytree import tree_map
    except ImportError:
        return _tree_map(function, tree)
    return tree_map(function, tree)


def _tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    if type(tree) is dict:
        return {key: _tree_map(function, value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        leaves = [_tree_map(function, value) for value in tree]
        return type(tree)(*leaves) if hasattr(tree, "_fields") else type(tree)(leaves)
    return function(tree)


@contextlib.contextmanager
def fresh_workers(loader: DataLoader) -> Iterator[None]:
    """Lets a loader with persistent workers start others inside this context.

    Without a way to set them aside, they go on with the random numbers that they have.
    """
    if not hasattr(loader, "_iterator"):
        yield
        return
    iterator, loader._iterator = loader._iterator, None
    try:
        yield
    finally:
        shutdown = getattr(loader._iterator, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()
        loader._iterator = iterator


# ---- autograd ----


def in_backward() -> bool:
    """Whether a backward pass is running in this thread; without a way to know, as if not."""
    graph_task = getattr(torch._C, "_current_graph_task_id", None)
    return graph_task is not None and graph_task() != -1
