"""Recomputes outputs of SReLU for the backward pass instead of keeping them.

For its gradient SReLU keeps its input, and the layer behind it keeps its output. An in-place ReLU
overwrites the first with the second, which SReLU cannot: its gradient needs the input. But its
output can be computed again from its input, for one more pass over the tensor.

Autograd passes every tensor that it is about to save through hooks
(torch.autograd.graph.saved_tensors_hooks). One in the memory of an output of SReLU is replaced by
what is needed to recompute it: what the unit itself saved of its input, and its parameters. Nothing
lives longer for it, and there is no cycle: outputs are looked up by weak references to their
storage, inputs are weak references to what autograd saved of them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, UntypedStorage

from .. import _torch_compat
from . import call_cache, execution
from .arguments import Parameters


def is_active() -> bool:
    """Whether the innermost hooks of this thread are ours."""
    if torch.compiler.is_compiling():  # which could not trace the question
        return False
    hooks = _torch_compat.top_saved_tensors_hooks(True)
    return hooks is not None and hooks[0] is pack


def recorded(
    apply: Callable[..., Any],
    x: Tensor,
    params: Parameters,
    dim: int,
    bias: Tensor | None,
    *rest: object,
) -> Tensor:
    """``apply(x, *params, bias, dim, *rest)``, with its output recorded for `pack`.

    To be called where hooks are active (`is_active`).
    """
    _thread.saving_input, _thread.input = True, None
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = apply(x, *params, bias, dim, *rest)
        saved = _thread.input
    finally:
        _thread.saving_input, _thread.input = False, None
    if saved is not None:  # else nothing needs a gradient
        per_channel = (*params,) if bias is None else (*params, bias)
        _outputs[y.untyped_storage()] = OutputRecord(y, saved, per_channel, dim)
    return y


class _ThreadState(threading.local):
    """Like torch's hooks, which belong to threads as well."""

    saving_input = False  # whether a unit saves its tensors now, the input first
    input: _SavedInput | None = None  # what was saved of it


_thread = _ThreadState()


def pack(tensor: Tensor) -> _Packed:
    """What autograd saves instead of ``tensor``."""
    if _thread.saving_input:
        _thread.saving_input = False
        _thread.input = _recomputed(tensor) or SavedInput(tensor.detach(), tensor._version)
        return _thread.input
    # Weights and data are leaves, and most of what is saved: no need to look them up. Nor for an
    # object: a network saves hundreds of tensors, and each costs the host its time.
    if tensor.is_leaf:
        return tensor, tensor._version
    # Detached: some operators keep their own output, which would hold the graph that holds it.
    return _recomputed(tensor) or (tensor.detach(), tensor._version)


def unpack(packed: _Packed) -> Tensor:
    """The tensor that was saved."""
    return _unmodified(*packed) if isinstance(packed, tuple) else packed.tensor()


def _unmodified(tensor: Tensor, version: int) -> Tensor:
    """``tensor`` itself; raises RuntimeError if it has another version."""
    if tensor._version == version:
        return tensor
    kind = str(tensor.dtype).removeprefix("torch.")
    raise RuntimeError(
        f"a {kind} tensor of shape {tuple(tensor.shape)} was modified in place before the backward "
        f"pass could use it: it is at version {tensor._version}, and was at version {version} in "
        "the forward pass. Modify a copy of it, or call backward first"
    )


def _recomputed(tensor: Tensor) -> RecomputedOutput | None:
    """What stands for ``tensor`` if it is an unchanged output of SReLU, or a view of one."""
    if tensor.layout is not torch.strided or not _torch_compat.has_storage(tensor):
        return None
    base = tensor._base
    if base is not None and base.is_leaf:  # a detached output: the graph of its unit may be gone
        return None
    output = _outputs.get(tensor.untyped_storage())
    return None if output is None else output.recomputed(tensor)


class SavedInput:
    """The input of a unit, as it is; with hooks, autograd does not check its version itself."""

    __slots__ = ("__weakref__", "_tensor", "_version")

    def __init__(self, tensor: Tensor, version: int) -> None:
        self._tensor, self._version = tensor, version

    def tensor(self) -> Tensor:
        return _unmodified(self._tensor, self._version)


class SavedParameters:
    """The parameters of a unit, and its bias if it has one, as they were.

    Copies where there is a process group: a sharded network frees its own before the backward pass
    of the next layer. Copies also of parameters without a gradient, which may be changed.
    """

    __slots__ = ("_tensors", "_versions")

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        # Not themselves: they may be given other values (``p.data = ...``), and what hangs on
        # them must not live as long as the memory of an output.
        kept = [t.detach() for t in tensors]
        sharded = _DISTRIBUTED and torch.distributed.is_initialized()
        if sharded or False in [t.requires_grad for t in tensors]:
            kept = [t.clone() for t in kept]
        self._tensors, self._versions = kept, [t._version for t in kept]

    def unchanged(self) -> bool:
        return [t._version for t in self._tensors] == self._versions

    def tensors(self) -> list[Tensor]:
        """The four parameters, and the bias if there is one."""
        return list(map(_unmodified, self._tensors, self._versions))


_DISTRIBUTED = torch.distributed.is_available()  # which a torch is, or is not


class RecomputedOutput:
    """A tensor in the memory of an output that is not kept: the output itself or a view of it."""

    __slots__ = ("__weakref__", "_dim", "_dtype", "_params", "_place", "_x")

    def __init__(self, tensor: Tensor, x: _SavedInput, params: SavedParameters, dim: int) -> None:
        self._x, self._params, self._dim = x, params, dim
        self._place = tensor.storage_offset(), tensor.size(), tensor.stride()
        self._dtype = tensor.dtype

    def tensor(self) -> Tensor:
        y = self._output()
        if (0, y.size(), y.stride()) == self._place and y.dtype == self._dtype:
            return y
        empty = torch.empty(0, dtype=self._dtype, device=y.device)
        return empty.set_(y.untyped_storage(), *self._place)  # type: ignore[arg-type]

    def _output(self) -> Tensor:
        """Computes it. Anew for everyone who asks: what one of them writes there is its own."""
        t_r, a_r, t_l, a_l, *rest = self._params.tensors()
        params, bias = Parameters(t_r, a_r, t_l, a_l), rest[0] if rest else None
        x, dim = self._x.tensor(), self._dim
        call = call_cache.lookup(x, params, dim, bias) or call_cache.add(x, params, dim, bias)
        if call is not None:
            return call.forward(x, *params, bias)
        return execution.forward(x, params, dim, bias)


_SavedInput = SavedInput | RecomputedOutput
_Packed = _SavedInput | tuple[Tensor, int]  # a tensor at a version


class OutputRecord:
    """What is known of an output of SReLU; holds neither it nor the input of its unit."""

    __slots__ = ("_dim", "_params", "_version", "_x")

    def __init__(
        self, y: Tensor, x: _SavedInput, per_channel: tuple[Tensor, ...], dim: int
    ) -> None:
        self._version, self._x = y._version, weakref.ref(x)
        self._params, self._dim = SavedParameters(per_channel), dim

    def recomputed(self, tensor: Tensor) -> RecomputedOutput | None:
        """What stands for ``tensor``, in the memory of the output.

        None if it has not the values that SReLU wrote there (a lazy view may flip their signs), or
        if they cannot be computed again: the input is gone, or the parameters have changed.
        """
        if tensor._version != self._version or tensor.is_neg() or tensor.is_conj():
            return None
        x = self._x()
        if x is None or not self._params.unchanged():
            return None
        return RecomputedOutput(tensor, x, self._params, self._dim)


_outputs: weakref.WeakKeyDictionary[UntypedStorage, OutputRecord] = weakref.WeakKeyDictionary()
