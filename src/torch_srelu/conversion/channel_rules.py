"""Rules for where the result of a torch function has its channels.

A layer makes channels: their number is a size of its weight. From there they are tracked only
through functions that are known to keep them together. After any other function their dimension is
unknown, and no size of the result may be taken for a number of channels: it may be the length of a
sequence or the height of an image, which differs between inputs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from math import prod
from types import EllipsisType
from typing import Any, Literal, NamedTuple, TypeGuard

import torch
from torch import Tensor

from .._torch_compat import tree_leaves, tree_map_only


class TensorInfo(NamedTuple):
    """What is known of a tensor."""

    dim: int | None  # of its channels, counted from the end; None: unknown
    layers: frozenset[int]  # which made it: the identities of the last parameters before it
    # fixed: computed from parameters and buffers alone, so its sizes are always the same;
    # input: of the network, possibly after pointwise functions.
    kind: Literal["fixed", "input", "computed"]


class TracedCall(NamedTuple):
    """One call of a torch function, and one of its results."""

    func: Callable
    args: tuple
    kwargs: dict[str, Any]
    out: Tensor
    info: Callable[[Tensor], TensorInfo]  # of the operands

    @property
    def operands(self) -> list[Tensor]:
        return tensors_in((self.args, self.kwargs))

    def dim(self, operand: Tensor) -> int | None:
        """The dimension of an operand's channels."""
        return self.info(operand).dim

    def fixed(self, operand: object) -> TypeGuard[Tensor]:
        """Whether an operand has the same sizes for every input of the network."""
        return isinstance(operand, Tensor) and self.info(operand).kind == "fixed"

    def weight(self, operand: object) -> bool:
        """Whether an operand is learned: a buffer, such as a graph, makes no channels."""
        return self.fixed(operand) and bool(self.info(operand).layers)

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, given by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


def tensors_in(tree: object) -> list[Tensor]:
    """The tensors among arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def channel_dim(call: TracedCall) -> int | None:
    """The dimension of the channels of ``call.out``, counted from the end; None if unknown."""
    name = name_of(call.func)
    rule = _RULES.get(name)
    if rule is None and is_pointwise(name):
        rule = _aligned
    try:
        return None if rule is None else rule(call)
    except Exception:  # called in a way that the rule does not cover, which is no mistake
        return None


def name_of(func: Callable) -> str:
    """One name for all forms of a function.

    As of ``x + y``, ``x.add_(y)`` and ``torch.add(x, y)``, or of conv1d, conv2d and conv3d.
    """
    name = getattr(func, "__name__", "")
    if name == "__get__":  # the getter of a property such as Tensor.T
        name = getattr(func.__self__, "__name__", "")  # type: ignore[attr-defined]
    name = re.sub(r"[123]d(?=_|$)", "", name.strip("_"))
    return _SYNONYMS.get(name, name)


@functools.cache
def is_pointwise(name: str) -> bool:
    """Whether the function is elementwise."""
    overloads = getattr(torch.ops.aten, name, None)
    return name in _OTHER_POINTWISE.split() or any(
        torch.Tag.pointwise in getattr(overloads, overload).tags
        for overload in (overloads.overloads() if overloads else ())
    )


# ---- layers ----


def _convolution(call: TracedCall) -> int | None:
    weight = call.argument(1, "weight")
    # Counted from the end, it is right for an input without a batch dimension as well.
    return 1 - weight.dim() if call.fixed(weight) else None


def _linear(call: TracedCall) -> int | None:
    position = 2 if name_of(call.func) == "bilinear" else 1
    return -1 if call.fixed(call.argument(position, "weight")) else None


def _norm_of_second(call: TracedCall) -> int | None:
    weighted = any(map(call.fixed, call.operands))
    return 1 - call.out.dim() if weighted else _aligned(call)


def _norm_of_last(call: TracedCall) -> int | None:
    weighted = any(call.fixed(t) and t.dim() == 1 for t in call.operands)
    return -1 if weighted else _aligned(call)


# ---- products: the result has the rows of the left and the columns of the right operand ----


def _product(call: TracedCall) -> int | None:
    left, right = call.operands[-2:]  # addmm has its bias before them
    if name_of(call.func) == "rmatmul":
        left, right = right, left
    if min(left.dim(), right.dim()) < 2:
        return None
    if call.weight(right):
        return -1
    if call.weight(left):
        return -2
    return _only(
        dim
        for t, own in ((left, -2), (right, -1))
        for dim in [call.dim(t)]
        if dim is not None and (dim == own or (dim < -2 and t.shape[dim] == call.out.shape[dim]))
    )


def _tensordot(call: TracedCall) -> int | None:
    right, summed = call.operands[1], call.argument(2, "dims", 2)
    return -1 if call.weight(right) and summed == right.dim() - 1 else None


def _einsum(call: TracedCall) -> int | None:
    equation, *operands = call.args
    if not isinstance(equation, str) or "->" not in equation:
        return None
    # The dimensions of an ellipsis come first: counted from the end, it can be left out.
    *terms, out = equation.replace(" ", "").replace("->", ",").split(",")
    *terms, out = (term.removeprefix("...") for term in (*terms, out))
    left, operands = ",".join(terms), tensors_in(operands)
    if "." in left + out:
        return None
    found = set()
    for term, x in zip(terms, operands, strict=True):
        dim = call.dim(x)
        if call.weight(x):  # a weight makes the channels that no other operand has
            found |= {letter for letter in term if left.count(letter) == 1}
        elif dim is not None:
            found.add(term[dim])
    return _only(out.index(letter) - len(out) for letter in found if letter in out)


# ---- functions that move elements ----


def _aligned(call: TracedCall) -> int | None:
    """Broadcasting: dimensions match from the last one on, and one that grows has no channels."""
    shape = call.out.shape
    dims = ((t.shape, call.dim(t)) for t in call.operands)
    return _only(d for given, d in dims if d and -d <= len(shape) and given[d] == shape[d])


def _resized(call: TracedCall) -> int | None:
    """Dimensions keep their order, and may change their sizes: pooling, concatenation, slices."""
    rank = call.out.dim()
    return _only(call.dim(t) for t in call.operands if t.dim() == rank)


def _concatenated(call: TracedCall) -> int | None:
    """Along the channels, all operands must have channels there."""
    rank, dim = call.out.dim(), _resized(call)
    along = call.argument(1, "dim", call.kwargs.get("axis", 0)) % rank - rank
    inputs = {"fixed", "input"} if rank != 3 and dim == 1 - rank else {"fixed"}  # by convention
    infos = [call.info(t) for t in call.operands]
    if along == dim and not all(info.dim == dim or info.kind in inputs for info in infos):
        return None
    return dim


def _reshaped(call: TracedCall) -> int | None:
    """Kept where the numbers of elements before and after the dimension stay the same."""
    (x, *_), out = call.operands, call.out.shape
    dim = call.dim(x)
    if dim is None:
        return None
    if dim == -1 and x.dim() == 2 and len(out) == 4 and out[0] == len(x):
        return -3  # a vector becomes an image, as in generators
    before, behind = prod(x.shape[:dim]), prod(x.shape[x.dim() + dim + 1 :])
    for i, size in enumerate(out):
        if (prod(out[:i]), size, prod(out[i + 1 :])) == (before, x.shape[dim], behind):
            return i - len(out)
    return None


def _by_meta_tensor(call: TracedCall) -> int | None:
    """Found by calling the function on a meta tensor whose sizes are all different."""
    rank = call.operands[0].dim()
    dim = _only(call.dim(t) for t in call.operands)
    if dim is None or any(t.dim() != rank for t in call.operands):
        return None
    # Larger than the number of operands, which is the size of a dimension that `stack` adds.
    least = len(call.operands) + 2
    sizes = torch.empty(tuple(range(least, least + rank)), device="meta")
    args, kwargs = tree_map_only(Tensor, lambda _: sizes, (call.args, call.kwargs))
    shape = tensors_in(call.func(*args, **kwargs))[0].shape
    return shape.index(sizes.shape[dim]) - len(shape) if sizes.shape[dim] in shape else None


def _extreme(call: TracedCall) -> int | None:
    """``max`` and ``min``: of two tensors, or along a dimension."""
    return _by_meta_tensor(call) if len(call.operands) == 1 else _aligned(call)


def _select(call: TracedCall) -> int | None:
    x = call.operands[0]
    removed = call.argument(1, "dim", 0) % x.dim()
    return _indexed(call, x, (*[slice(None)] * removed, 0))


def _getitem(call: TracedCall) -> int | None:
    x, index = call.args
    return _indexed(call, x, index if isinstance(index, tuple) else (index,))


def _indexed(call: TracedCall, x: Tensor, index: tuple) -> int | None:
    dim = call.dim(x)
    taken = [item for item in index if item is not None and item is not ...]
    lists = [item for item in taken if not isinstance(item, (int, slice))]
    simple = all(isinstance(item, Tensor) and item.dim() == 1 for item in lists)
    if dim is None or not simple or len(lists) > 1 or any(isinstance(i, bool) for i in taken):
        return None
    dims = iter(range(-x.dim(), 0))
    kept: list[int | None] = []  # the dimensions of the result, as numbered in x
    for item in index if any(item is ... for item in index) else (*index, ...):
        if item is None:
            kept.append(None)
        elif isinstance(item, EllipsisType):
            kept += [next(dims) for _ in range(x.dim() - len(taken))]
        elif isinstance(item, int):
            next(dims)
        else:
            kept.append(next(dims))
    return kept.index(dim) - len(kept) if dim in kept else None


def _only(dims: Iterable[int | None]) -> int | None:
    """The dimension on which all that are known agree."""
    known = {dim for dim in dims if dim is not None}
    return known.pop() if len(known) == 1 else None


_SYNONYMS = {
    **dict.fromkeys(("radd", "iadd"), "add"),
    **dict.fromkeys(("isub", "subtract"), "sub"),
    **dict.fromkeys(("rmul", "imul", "multiply"), "mul"),
    **dict.fromkeys(("truediv", "rtruediv", "itruediv", "rdiv", "idiv", "divide"), "div"),
    **dict.fromkeys(("rpow", "ipow"), "pow"),
    **{"negative": "neg", "absolute": "abs"},
}
_OTHER_POINTWISE = """
    alpha_dropout bfloat16 contiguous copy cpu cuda data detach double dropout feature_alpha_dropout
    float half hardswish log_sigmoid logsigmoid prelu requires_grad softsign srelu tanhshrink to
    type type_as
"""  # not tagged by torch, and `srelu`
# Functions with a size among their arguments, which may be one of the network's input.
TAKE_SIZES = {"embedding", "expand", "getitem", "index_select", "interpolate", "narrow", "repeat"}
_TABLE: dict[Callable[[TracedCall], int | None], str] = {
    _convolution: "conv conv_transpose",
    _linear: "linear bilinear embedding embedding_bag",
    lambda call: -1: "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
    _norm_of_second: "batch_norm instance_norm group_norm",
    _norm_of_last: "layer_norm rms_norm",
    _product: "matmul rmatmul mm bmm addmm baddbmm sparse_mm",
    _tensordot: "tensordot",
    _einsum: "einsum",
    _aligned: """
        broadcast_to cumsum expand expand_as flip gumbel_softmax local_response_norm log_softmax
        normalize repeat repeat_interleave roll softmax softmin sort tril triu
    """,
    _resized: """
        adaptive_avg_pool adaptive_max_pool avg_pool channel_shuffle chunk constant_pad_nd
        fractional_max_pool glu index_add index_copy index_select interpolate lp_pool max_pool
        max_pool_with_indices max_unpool narrow pad pixel_shuffle pixel_unshuffle scatter
        scatter_add scatter_reduce split tensor_split topk upsample
    """,
    _concatenated: "cat concat concatenate",
    _reshaped: "flatten ravel reshape reshape_as squeeze unflatten unsqueeze view view_as",
    _by_meta_tensor: """
        H T adjoint amax amin linalg_vector_norm logsumexp mH mT mean median moveaxis movedim
        nanmean norm permute prod stack std sum swapaxes swapdims t transpose var
    """,
    _extreme: "max min",
    _select: "select unbind",
    _getitem: "getitem",
}
_RULES = {name: rule for rule, names in _TABLE.items() for name in names.split()}
