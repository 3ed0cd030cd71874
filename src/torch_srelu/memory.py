"""SReLU at the memory of an in-place ReLU: its outputs are recomputed instead of kept.

For its gradient SReLU keeps its input, and the layer behind it keeps its output. An in-place ReLU
overwrites the first with the second, which SReLU cannot: its gradient needs the input. But its
output can be had again from its input, for one more pass over the tensor.

Autograd shows us every tensor that it is about to keep (torch.autograd.graph.saved_tensors_hooks).
One that lies in the memory of an output of SReLU is replaced by a recipe: what the unit itself
keeps of its input, and its parameters. Nothing lives longer for it, and there is no cycle: outputs
are known by weak references to their memory, inputs by weak references to what autograd keeps of
them. Where eager calls are in C++, so is the usual case (native/kept.h), and outputs are known by
the nodes of autograd's graph that made them.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, UntypedStorage

from .ops import autograd as eager
from .ops import backends, cpp
from .ops import execution as compute

Output = TypeVar("Output", Tensor, Tensor | None)
Given = ParamSpec("Given")
Result = TypeVar("Result")


class recompute_outputs:
    """Forward passes inside this context keep no output of SReLU for their backward pass.

    Where a layer would keep it, the backward pass computes it again from the unit's input, to the
    same bits, so that gradients do not change. A network of convolutions (or normalisations) and
    SReLU then needs the memory of the same network with in-place ReLU. Backward may be called
    inside or outside of the context.

    As without it, a tensor that was modified in place is a RuntimeError when the backward pass
    needs it, and the input and the parameters of a unit are needed where its output is. An output
    itself may be modified once a layer has used it: it is computed again as it was. Writes into
    memory that autograd does not see (``x.data.mul_()``, NumPy) are not seen here either.

    The context may be around a part of the network only: where outputs are small, there is little
    to save. What counts is where an output is made and used: a layer outside keeps what it needs.
    It is a decorator as well, for the ``forward`` of a class: a copy of an object whose own
    ``forward`` was replaced computes with the parameters of the original.

    An output that several layers keep is computed for each of them. Units right behind each other,
    with no layer between, compute all those before them as well: a long chain is better left alone.

    Compiled code decides for itself what it recomputes: there, this context has no effect. Nor has
    it in a checkpointed region or an inner ``saved_tensors_hooks``: torch asks the innermost hooks
    only. ``torch.func.grad`` and its relatives refuse all such hooks with an error.

    Example:
        >>> import torch
        >>> import torch_srelu as ts
        >>> net = torch.nn.Sequential(ts.SReLU(3), torch.nn.Conv2d(3, 8, 5))
        >>> with ts.recompute_outputs():
        ...     loss = net(torch.randn(2, 3, 8, 8)).sum()
        >>> loss.backward()
    """

    # Without state, so that a context may be entered again, and by several threads: torch knows
    # which hooks are in use. No generator, which would cost as much as a small layer.
    __slots__ = ()

    def __enter__(self) -> None:
        if not torch.compiler.is_compiling():
            # Parameters that are sharded must be copied, which C++ does not do.
            _push(*((_pack, _unpack) if _distributed() else _HOOKS))

    def __exit__(self, *error: object) -> None:
        if not torch.compiler.is_compiling():
            _pop()

    def __call__(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        @functools.wraps(function)
        def recomputing(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            with recompute_outputs():  # not self, a context that the compiler did not see made
                return function(*args, **kwargs)

        return recomputing


def active() -> bool:
    """Whether autograd asks `recompute_outputs` what to keep, in this thread."""
    if torch.compiler.is_compiling():  # which could not trace the question
        return False
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)  # type: ignore[attr-defined]
    return hooks is not None and hooks[0] in (_pack, _HOOKS[0])  # not others, who want to see all


def noted(function: Callable[..., Output], *call: Any) -> Output:
    """``function(x, t_r, a_r, t_l, a_l, dim, bias, ...)``, with its output noted for `_pack`.

    To be called where `recompute_outputs` is `active`.
    """
    _here.noting, _here.input = True, None
    try:
        with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
            y = function(*call)
        packed = _here.input
    finally:
        _here.noting, _here.input = False, None
    if y is not None and packed is not None:  # else nothing needs a gradient
        _, t_r, a_r, t_l, a_l, dim, bias, *_ = call
        _outputs[y.untyped_storage()] = _Output(y, packed, (t_r, a_r, t_l, a_l, bias), dim)
    return y


class _Here(threading.local):
    """What this thread is doing; torch's hooks belong to threads as well."""

    noting = False  # whether a unit is giving its tensors to autograd, the input first
    input: _Kept | _Recomputed | None = None  # what autograd keeps of that


_here = _Here()


def _pack(tensor: Tensor) -> _Packed:
    """What autograd keeps instead of ``tensor``."""
    if _here.noting:
        _here.noting = False
        _here.input = _recomputed(tensor) or _Kept(tensor.detach(), tensor._version)
        return _here.input
    # Weights and data are leaves, and most of what is kept: no need to look them up. Nor for an
    # object: a network keeps hundreds of tensors, and each costs the host its time.
    if tensor.is_leaf:
        return tensor, tensor._version
    # Detached: some operators keep their own output, which would hold the graph that holds it.
    return _recomputed(tensor) or (tensor.detach(), tensor._version)


def _unpack(packed: _Packed) -> Tensor:
    if not isinstance(packed, tuple):
        return packed.tensor()
    tensor, version = packed
    if tensor._version != version:
        raise _modified(tensor, version)
    return tensor


def _modified(tensor: Tensor, version: int) -> RuntimeError:
    kind = str(tensor.dtype).removeprefix("torch.")
    return RuntimeError(
        f"a {kind} tensor of shape {tuple(tensor.shape)} was modified in place before the backward "
        f"pass could use it: it is at version {tensor._version}, and was at version {version} in "
        "the forward pass. Modify a copy of it, or call backward first"
    )


def _recomputed(tensor: Tensor) -> _Recomputed | None:
    """What stands for ``tensor`` if it is an unchanged output of SReLU, or a view of one."""
    if not _has_memory(tensor):
        return None
    base = tensor._base
    if base is not None and base.is_leaf:  # a detached output: the graph of its unit may be gone
        return None
    output = _outputs.get(tensor.untyped_storage()) or _made_by_cpp(tensor)
    return None if output is None else output.recomputed(tensor)


def _has_memory(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and torch._C._has_storage(tensor)


def _is_noted(tensor: Tensor) -> bool:
    return _has_memory(tensor) and tensor.untyped_storage() in _outputs


def _made_by_cpp(tensor: Tensor) -> _Output | None:
    """What there is to know of an output that `_outputs` need not know, if ``tensor`` is in it."""
    y = tensor if tensor._base is None else tensor._base
    call = None if cpp.compiled is None else cpp.compiled.origin_of(y)
    # A view can be given other memory (``view.data = ...``), and keeps its base.
    if call is None or tensor.untyped_storage() is not y.untyped_storage():
        return None
    x, t_r, a_r, t_l, a_l, dim, bias = call
    # A weak reference to x is enough: its Python object lives as long as the node keeps x.
    return _Output(y, x, (t_r, a_r, t_l, a_l, bias), dim)


class _Kept:
    """The input of a unit, kept as it is; autograd leaves it to hooks to see that it stays so."""

    __slots__ = ("__weakref__", "_tensor", "_version")

    def __init__(self, tensor: Tensor, version: int) -> None:
        self._tensor, self._version = tensor, version

    def tensor(self) -> Tensor:
        if self._tensor._version != self._version:
            raise _modified(self._tensor, self._version)
        return self._tensor


class _Parameters:
    """Those of a unit, and its bias if it has one, as they were.

    Copies where there is a process group: a sharded network frees its own before the backward pass
    of the next layer. Copies also of parameters without a gradient, which may be changed.
    """

    __slots__ = ("_tensors", "_versions")

    def __init__(self, tensors: list[Tensor]) -> None:
        if False in [t.requires_grad for t in tensors] or _distributed():
            with torch.no_grad():
                kept = [t.clone() for t in tensors]
        else:
            # Not themselves: they may be given other values (``p.data = ...``), and what hangs on
            # them must not live as long as the memory of an output.
            kept = [t.detach() for t in tensors]
        self._tensors, self._versions = kept, [t._version for t in kept]

    def unchanged(self) -> bool:
        return [t._version for t in self._tensors] == self._versions

    def tensors(self) -> list[Tensor]:
        """The four parameters, and the bias if there is one."""
        if not self.unchanged():
            pairs = zip(self._tensors, self._versions, strict=True)
            raise next(_modified(t, version) for t, version in pairs if t._version != version)
        return self._tensors


_AVAILABLE = torch.distributed.is_available()  # which a torch is, or is not


def _distributed() -> bool:
    return _AVAILABLE and torch.distributed.is_initialized()


class _Recomputed:
    """A tensor in the memory of an output that is not kept: the output itself or a view of it."""

    __slots__ = ("__weakref__", "_dim", "_dtype", "_params", "_place", "_x")

    def __init__(
        self, tensor: Tensor, x: _Kept | _Recomputed, params: _Parameters, dim: int
    ) -> None:
        self._x, self._params, self._dim = x, params, dim
        self._place = tensor.storage_offset(), tensor.size(), tensor.stride()
        self._dtype = tensor.dtype

    def tensor(self) -> Tensor:
        if torch.is_grad_enabled():
            with torch.no_grad():
                y = self._output()
        else:
            y = self._output()
        if (0, y.size(), y.stride()) == self._place and y.dtype == self._dtype:
            return y
        empty = torch.empty(0, dtype=self._dtype, device=y.device)
        return empty.set_(y.untyped_storage(), *self._place)  # type: ignore[arg-type]

    def _output(self) -> Tensor:
        """Computes it. Anew for everyone who asks: what one of them writes there is its own."""
        t_r, a_r, t_l, a_l, *bias = self._params.tensors()
        call = (self._x.tensor(), t_r, a_r, t_l, a_l, self._dim, bias[0] if bias else None)
        if cpp.compiled is not None and backends.forced is None:
            y = cpp.compiled.srelu(*call)
            if y is not None:
                return y
        return _compute(*call)


def _compute(
    x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor, dim: int, bias: Tensor | None
) -> Tensor:
    call = eager.remembered(x, t_r, a_r, t_l, a_l, dim, bias)
    call = call or eager.remember(x, t_r, a_r, t_l, a_l, dim, bias)
    if call is not None:
        return call.forward(x, t_r, a_r, t_l, a_l, bias)
    return compute.compute(x, t_r, a_r, t_l, a_l, dim, bias)


_Packed = _Kept | _Recomputed | tuple[Tensor, int]  # a tensor at a version


class _Output:
    """What there is to know of an output of SReLU; holds neither it nor the input of its unit."""

    __slots__ = ("_dim", "_params", "_version", "_x", "_x_version")

    def __init__(
        self,
        y: Tensor,
        x: _Kept | _Recomputed | Tensor,
        params: tuple[Tensor | None, ...],
        dim: int,
    ) -> None:
        self._version, self._x = y._version, weakref.ref(x)
        self._x_version = x._version if isinstance(x, Tensor) else 0
        self._params, self._dim = _Parameters([p for p in params if p is not None]), dim

    def recomputed(self, tensor: Tensor) -> _Recomputed | None:
        """What stands for ``tensor``, in the memory of the output.

        None if it has not the values that SReLU wrote there (a lazy view may flip their signs), or
        if they cannot be had again: the input is gone, or it or the parameters have changed.
        """
        if tensor._version != self._version or tensor.is_neg() or tensor.is_conj():
            return None
        if not self._params.unchanged():
            return None
        x = self._x()
        if isinstance(x, Tensor):
            if x._version != self._x_version:
                return None
            x = _Kept(x.detach(), self._x_version)  # not its graph
        return None if x is None else _Recomputed(tensor, x, self._params, self._dim)


_outputs: weakref.WeakKeyDictionary[UntypedStorage, _Output] = weakref.WeakKeyDictionary()

# For saved_tensors_hooks. Where there is C++, the usual cases stay in it (native/kept.h).
_HOOKS: tuple[Callable[..., Any], Callable[..., Any]] = (_pack, _unpack)
# What saved_tensors_hooks does when it is entered and left.
_push: Callable[..., object] = torch._C._autograd._push_saved_tensors_default_hooks  # type: ignore[attr-defined]
_pop: Callable[[], object] = torch._C._autograd._pop_saved_tensors_default_hooks  # type: ignore[attr-defined]
if cpp.compiled is not None:
    known = _outputs.data  # type: ignore[attr-defined] # the dict in it: C can ask for its size
    cpp.compiled.set_hooks(_pack, _unpack, _compute, _is_noted, known)
    _HOOKS = (cpp.compiled.pack, cpp.compiled.unpack)
    _push, _pop = cpp.compiled.push_hooks, cpp.compiled.pop_hooks
