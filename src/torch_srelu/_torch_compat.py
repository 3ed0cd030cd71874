"""Private names of torch, functorch, Inductor and Triton that the package uses, with fallbacks.

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
from torch.autograd import forward_ad
from torch.utils.data import DataLoader


def _find(path: str) -> Any:
    """The object of this dotted path below torch; None if this torch has none."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


# ---- who traces or transforms ----

# Without it: as if a transform were always active, so that SReLU is made of plain operators.
functorch_transforms_active: Callable[[], bool] = _find("_C._are_functorch_transforms_active") or (
    lambda: True
)


def forward_ad_active() -> bool:
    """Whether a level of forward-mode AD is entered; without a way to know, as if it were."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def is_exporting() -> bool:
    """Whether torch.export is at work.

    Not torch.compiler.is_exporting() where there is another way: torch 2.11 answers True to that in
    every torch.compile, which then makes SReLU of plain operators: right, and slower.
    """
    exporting = getattr(torch.compiler, "_is_exporting_flag", None)
    return torch.compiler.is_exporting() if exporting is None else exporting


# Without these: as if a mode were always active, so that every call is one of the custom operator.
_modes = _find("_C._len_torch_dispatch_stack") or (lambda: 1)
_modes_before_dispatch = _find("_ops._len_torch_dispatch_stack_pre_dispatch") or (lambda: 1)


def dispatch_modes_active() -> bool:
    """Whether a TorchDispatchMode is active."""
    return _modes() > 0 or _modes_before_dispatch() > 0


# ---- tensors ----


def _has_storage(tensor: Tensor) -> bool:
    try:
        return tensor.untyped_storage() is not None
    except (NotImplementedError, RuntimeError):
        return False


def _is_zero_tensor(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and has_storage(tensor) and tensor.data_ptr() == 0


# Whether a tensor has memory of its own, of which a wrapper has none.
has_storage: Callable[[Tensor], bool] = _find("_C._has_storage") or _has_storage
# Whether a tensor stands for zeros without having memory for them.
is_zero_tensor: Callable[[Tensor], bool] = _find("Tensor._is_zerotensor") or _is_zero_tensor


def tensor_guards(*tensors: Tensor) -> Any:
    """torch.compile's guards, made of these tensors; their ``check`` says if others are alike.

    None where there are none, or if one tensor comes twice. Without them, no eager call is cached.
    """
    if _TensorGuards is None:
        return None
    guards = _TensorGuards(*tensors, **_STATIC)
    return guards if guards.check(*tensors) else None


_STATIC = {"dynamic_dims_sizes": None, "dynamic_dims_strides": None}
_TensorGuards: Any
try:
    from torch._C._dynamo.guards import TensorGuards as _TensorGuards

    _TensorGuards(torch.empty(0, device="cpu"), **_STATIC)
except (ImportError, AttributeError, TypeError):
    _TensorGuards = None


# ---- autograd ----


def function_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` without its support for torch.func, if that can be had."""
    base = _find("_C._FunctionBase")
    if base is None or not hasattr(base, "apply") or not issubclass(function, base):
        return function.apply
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


_HOOKS: Any = [
    _find("_C._autograd._push_saved_tensors_default_hooks"),
    _find("_C._autograd._pop_saved_tensors_default_hooks"),
    _find("_C._autograd._top_saved_tensors_default_hooks"),
]
# Enter two hooks for saved tensors, leave those entered last, and the innermost two of this thread
# (called with True) or None. Without any one of the three, they do nothing.
push_saved_tensors_hooks, pop_saved_tensors_hooks, top_saved_tensors_hooks = (
    [lambda *_: None] * 3 if None in _HOOKS else _HOOKS
)


# ---- CUDA ----

# The number of the current device, and the handle of a device's current stream.
current_device: Callable[[], int] = _find("_C._cuda_getDevice") or torch.cuda.current_device


current_stream: Callable[[int], int] = _find("_C._cuda_getCurrentRawStream") or (
    lambda device: torch.cuda.current_stream(device).cuda_stream
)


# ---- Inductor ----


def register_compiler_pattern(operator: Any, handler: Callable[..., None]) -> str | None:
    """Has Inductor call ``handler(match, *args)`` for every call of an operator in a training step.

    Before the step is divided into forward and backward, which then finds what need not be kept.
    Returns None, or what this torch lacks for it: compiled code is right and slower then.
    """
    try:
        from torch._inductor.fx_passes import joint_graph
        from torch._inductor.pattern_matcher import CallFunctionVarArgs, register_graph_pattern

        patterns: Any = joint_graph.pass_patterns[0]
        register_graph_pattern(CallFunctionVarArgs(operator), pass_dict=patterns)(handler)
    except (ImportError, AttributeError, LookupError, TypeError) as error:
        return str(error)
    return None


def compiler_is_loaded() -> bool:
    """Whether the patterns can be registered without importing the compiler for it."""
    return "torch._inductor.fx_passes.post_grad" in sys.modules


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


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether hooks are registered on the forward pass; without a way to know, as if not."""
    names = ("_forward_hooks", "_forward_pre_hooks")
    return any(getattr(module, name, None) for name in names)


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


# ---- trial runs ----

# None: networks are run on real tensors, which costs time and memory.
FakeTensorMode: Any
try:
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError:
    FakeTensorMode = None


# ---- nested containers; without torch's functions: of dicts, lists and tuples ----

try:
    from torch.utils._pytree import tree_leaves, tree_map_only  # type: ignore[assignment]
except ImportError:

    def tree_leaves(tree: Any) -> list[Any]:
        """The values in nested containers."""
        leaves: list[Any] = []
        tree_map_only(object, leaves.append, tree)
        return leaves

    def tree_map_only(kind: type, function: Callable[[Any], Any], tree: Any) -> Any:
        """The same containers with ``function`` applied to the values of one type."""
        if isinstance(tree, dict):
            return {key: tree_map_only(kind, function, item) for key, item in tree.items()}
        if isinstance(tree, (list, tuple)):
            items = [tree_map_only(kind, function, item) for item in tree]
            return tree._make(items) if hasattr(tree, "_make") else type(tree)(items)  # type: ignore[attr-defined]
        return function(tree) if isinstance(tree, kind) else tree
