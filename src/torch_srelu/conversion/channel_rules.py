"""Where a function of torch puts the channels: rules for the functions that keep them together.

A layer makes channels: their number is a size of its weight. From there they are followed only
through what is known to leave them together. After any other function nobody knows where they are,
and no size of the result may be taken for a number of channels: it may be the length of a sequence
or the height of an image, which is another one next time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from math import prod
from types import EllipsisType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only


class Tag(NamedTuple):
    """What is known of a tensor."""

    dim: int | None  # where its channels are, counted from the end; None: nobody knows
    layers: frozenset[int]  # which made it: the identities of the last parameters on the ways here
    # fixed: made of parameters and buffers alone, so its sizes are always the same;
    # input: of the network, as it came, but for functions of every number by itself.
    kind: Literal["fixed", "input", "made"]


class Step(NamedTuple):
    """One call of a function, and one of its results."""

    func: Callable
    args: tuple
    kwargs: dict[str, Any]
    out: Tensor
    tag: Callable[[Tensor], Tag]  # what is known of the operands

    @property
    def operands(self) -> list[Tensor]:
        return tensors((self.args, self.kwargs))

    def fixed(self, operand: object) -> bool:
        """Whether an operand has the same sizes whatever the network is given."""
        return isinstance(operand, Tensor) and self.tag(operand).kind == "fixed"

    def weight(self, operand: object) -> bool:
        """Whether an operand is learned: a buffer, such as a graph, makes no channels."""
        return (
            isinstance(operand, Tensor) and self.fixed(operand) and bool(self.tag(operand).layers)
        )

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, however it was given."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


def tensors(tree: object) -> list[Tensor]:
    """The tensors among arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def channel_dim(step: Step) -> int | None:
    """The dimension of the channels of ``step.out``, counted from the end; None if unknown."""
    name = name_of(step.func)
    rule = _RULES.get(name)
    if rule is None and pointwise(name):
        rule = _aligned
    try:
        return None if rule is None else rule(step)
    except Exception:  # called in a way that the rule does not foresee, which is no mistake
        return None


def name_of(func: Callable) -> str:
    """One name for all spellings of a function: ``x + y``, ``x.add_(y)``, ``torch.add(x, y)``."""
    name = getattr(func, "__name__", "")
    if name == "__get__":  # the getter of a property such as Tensor.T
        name = getattr(func.__self__, "__name__", "")  # type: ignore[attr-defined]
    name = name.strip("_")
    return _SYNONYMS.get(name, name)


@functools.cache
def pointwise(name: str) -> bool:
    """Whether the function computes every number of its result from one number of each operand."""
    overloads = getattr(torch.ops.aten, name, None)
    return name in _OTHER_POINTWISE.split() or any(
        torch.Tag.pointwise in getattr(overloads, overload).tags
        for overload in (overloads.overloads() if overloads else ())
    )


def cuts(name: str) -> bool:
    """Whether the function is told a size, which may be that of the input of the network."""
    return name in _CUTS.split()


# ---- layers ----


def _convolution(step: Step) -> int | None:
    weight = step.argument(1, "weight")
    # Counted from the end, it is right for an input without a batch dimension as well.
    return 1 - weight.dim() if step.fixed(weight) else None


def _linear(step: Step) -> int | None:
    return -1 if step.fixed(step.argument(1, "weight")) else None


def _bilinear(step: Step) -> int | None:
    return -1 if step.fixed(step.argument(2, "weight")) else None


def _recurrent(step: Step) -> int | None:
    return -1


def _norm_of_second(step: Step) -> int | None:
    weighted = any(map(step.fixed, step.operands))
    return 1 - step.out.dim() if weighted else _aligned(step)


def _norm_of_last(step: Step) -> int | None:
    weighted = any(step.fixed(t) and t.dim() == 1 for t in step.operands)
    return -1 if weighted else _aligned(step)


# ---- products: the result has the rows of the left and the columns of the right operand ----


def _product(step: Step) -> int | None:
    left, right = step.operands[-2:]  # before them, addmm has what it adds
    if name_of(step.func) == "rmatmul":
        left, right = right, left
    if min(left.dim(), right.dim()) < 2:
        return None
    if step.weight(right):
        return -1
    if step.weight(left):
        return -2
    return _only(
        dim
        for t, own in ((left, -2), (right, -1))
        for dim in [step.tag(t).dim]
        if dim is not None and (dim == own or (dim < -2 and t.shape[dim] == step.out.shape[dim]))
    )


def _tensordot(step: Step) -> int | None:
    right, summed = step.operands[1], step.argument(2, "dims", 2)
    return -1 if step.weight(right) and summed == right.dim() - 1 else None


def _einsum(step: Step) -> int | None:
    equation, *operands = step.args
    if not isinstance(equation, str) or "->" not in equation:
        return None
    # What three dots stand for comes first, if anywhere: from the end, letters count as ever.
    *terms, out = equation.replace(" ", "").replace("->", ",").split(",")
    *terms, out = (term.removeprefix("...") for term in (*terms, out))
    left, operands = ",".join(terms), tensors(operands)
    if "." in left + out:
        return None
    found = set()
    for term, x in zip(terms, operands, strict=True):
        dim = step.tag(x).dim
        if step.weight(x):  # the channels that a weight makes are those that only it has
            found |= {letter for letter in term if left.count(letter) == 1}
        elif dim is not None:
            found.add(term[dim])
    return _only(out.index(letter) - len(out) for letter in found if letter in out)


# ---- functions that move numbers around ----


def _aligned(step: Step) -> int | None:
    """Dimensions are matched from the last one on; a channel that is repeated is none any more."""
    shape = step.out.shape
    dims = ((t.shape, step.tag(t).dim) for t in step.operands)
    return _only(
        dim for given, dim in dims if dim and -dim <= len(shape) and given[dim] == shape[dim]
    )


def _resized(step: Step) -> int | None:
    """Dimensions keep their places, and may have other sizes: pooling, concatenation, parts."""
    rank = step.out.dim()
    return _only(step.tag(t).dim for t in step.operands if t.dim() == rank)


def _concatenated(step: Step) -> int | None:
    """Along the channels, only of tensors that have nothing else there."""
    rank, dim = step.out.dim(), _resized(step)
    along = step.argument(1, "dim", step.kwargs.get("axis", 0)) % rank - rank
    inputs = {"fixed", "input"} if rank != 3 and dim == 1 - rank else {"fixed"}  # by convention
    tags = [step.tag(t) for t in step.operands]
    if along == dim and not all(tag.dim == dim or tag.kind in inputs for tag in tags):
        return None
    return dim


def _reshaped(step: Step) -> int | None:
    """Kept where as many numbers lie before and behind each channel as did."""
    (x, *_), out = step.operands, step.out.shape
    dim = step.tag(x).dim
    if dim is None:
        return None
    if dim == -1 and x.dim() == 2 and len(out) == 4 and out[0] == len(x):
        return -3  # a vector becomes an image, as in generators
    before, behind = prod(x.shape[:dim]), prod(x.shape[x.dim() + dim + 1 :])
    for i, size in enumerate(out):
        if (prod(out[:i]), size, prod(out[i + 1 :])) == (before, x.shape[dim], behind):
            return i - len(out)
    return None


def _repeated(step: Step) -> int | None:
    """Done once more on a tensor without memory whose sizes are all different."""
    rank = step.operands[0].dim()
    dim = _only(step.tag(t).dim for t in step.operands)
    if dim is None or any(t.dim() != rank for t in step.operands):
        return None
    # Larger than the number of operands, which is the size of a dimension that `stack` adds.
    least = len(step.operands) + 2
    sizes = torch.empty(tuple(range(least, least + rank)), device="meta")
    args, kwargs = tree_map_only(Tensor, lambda _: sizes, (step.args, step.kwargs))
    shape = tensors(step.func(*args, **kwargs))[0].shape
    return shape.index(sizes.shape[dim]) - len(shape) if sizes.shape[dim] in shape else None


def _extreme(step: Step) -> int | None:
    """``max`` and ``min``: of two tensors, or along a dimension."""
    return _repeated(step) if len(step.operands) == 1 else _aligned(step)


def _select(step: Step) -> int | None:
    x = step.operands[0]
    gone = step.argument(1, "dim", 0) % x.dim()
    return _indexed(step, x, (*[slice(None)] * gone, 0))


def _getitem(step: Step) -> int | None:
    x, index = step.args
    return _indexed(step, x, index if isinstance(index, tuple) else (index,))


def _indexed(step: Step, x: Tensor, index: tuple) -> int | None:
    dim = step.tag(x).dim
    taken = [item for item in index if item is not None and item is not ...]
    lists = [item for item in taken if not isinstance(item, (int, slice))]
    simple = all(isinstance(item, Tensor) and item.dim() == 1 for item in lists)
    if dim is None or not simple or len(lists) > 1 or any(isinstance(i, bool) for i in taken):
        return None
    dims = iter(range(-x.dim(), 0))
    kept: list[int | None] = []  # the dimensions of the result, by their old numbers
    whole = any(item is ... for item in index)
    for item in index if whole else (*index, ...):
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
    """What all who know agree upon."""
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
    alpha_dropout bfloat16 contiguous copy cpu cuda data detach double dropout dropout1d dropout2d
    dropout3d feature_alpha_dropout float half hardswish log_sigmoid logsigmoid prelu requires_grad
    softsign srelu tanhshrink to type type_as
"""  # what torch does not mark as such, and our own
_CUTS = "embedding expand getitem index_select interpolate narrow repeat"
_TABLE: dict[Callable[[Step], int | None], str] = {
    _convolution: """
        conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    """,
    _linear: "linear embedding embedding_bag",
    _bilinear: "bilinear",
    _recurrent: "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
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
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d channel_shuffle
        chunk constant_pad_nd fractional_max_pool2d fractional_max_pool3d glu index_add index_copy
        index_select interpolate lp_pool1d lp_pool2d max_pool1d max_pool2d max_pool3d
        max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices max_unpool1d
        max_unpool2d max_unpool3d narrow pad pixel_shuffle pixel_unshuffle scatter scatter_add
        scatter_reduce split tensor_split topk upsample
    """,
    _concatenated: "cat concat concatenate",
    _reshaped: "flatten ravel reshape reshape_as squeeze unflatten unsqueeze view view_as",
    _repeated: """
        H T adjoint amax amin linalg_vector_norm logsumexp mH mT mean median moveaxis movedim
        nanmean norm permute prod stack std sum swapaxes swapdims t transpose var
    """,
    _extreme: "max min",
    _select: "select unbind",
    _getitem: "getitem",
}
_RULES = {name: rule for rule, names in _TABLE.items() for name in names.split()}
