"""Finds a batch normalisation before SReLU in the graph of a training step.

torch.compile decomposes its backward pass, for the gradient ``g`` of its output, its input ``z``
and the ``mean`` of each channel, into operators among which are

    sum(g)    sum(g * (z - mean))        over everything but the channels

and its forward pass into ``(z - mean) * rstd * weight + bias``, in the dtype of the arithmetic and
then rounded. A residual may be added to that. Only exactly these operators are matched.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from .. import layout
from ..reference import compute_dtype

aten, convert = torch.ops.aten, torch.ops.prims.convert_element_type.default

_SHAPES = (aten.unsqueeze.default, aten.squeeze.dims, aten.view.default, aten.reshape.default)


class RecomputedInput(NamedTuple):
    """What SReLU's input is recomputed from, besides z and the mean."""

    affine: tuple[Node, Node, Node]  # rstd, weight, bias
    residual: Node | None


class BatchNormMatch(NamedTuple):
    """The nodes of a batch normalisation: its input, mean and backward sums."""

    z: Node
    mean: Node
    sums: list[Node]  # of the gradient
    dots: list[Node]  # of the gradient times (z - mean)
    recomputed: RecomputedInput | None  # None: SReLU's input is saved

    def write_before(self, call: Node) -> list[Node | None]:
        """The fields of a `BatchNormInput`."""
        channels = (value(self.z).shape[1],)
        with call.graph.inserting_before(call):
            mean = _insert(call, aten.reshape.default, self.mean, channels)
            if self.recomputed is None:
                return [self.z, mean, None, None, None]
            rstd, weight, shift = (
                _insert(call, aten.reshape.default, n, channels) for n in self.recomputed.affine
            )
            scale = _insert(call, aten.mul.Tensor, rstd, weight)
            return [self.z, mean, scale, shift, self.recomputed.residual]

    def replace_sums(self, call: Node) -> None:
        """Replaces the sums by the operator's third result."""
        with call.graph.inserting_after(call):
            fused = _insert(call, operator.getitem, call, 2)
        for row, replaced in enumerate((self.sums, self.dots)):
            for node in replaced:
                with call.graph.inserting_after(fused):
                    replacement = _insert(node, aten.select.int, fused, 0, row)
                node.replace_all_uses_with(replacement)


def find_batch_norm(call: Node, x: Node, t_r: Node, dim: int) -> BatchNormMatch | None:
    """The normalisation that needs sums of the gradient of ``x``, which ``call`` returns first."""
    gradient = next((user for user in call.users if user.args[1:] == (0,)), None)
    if gradient is None or not _is_columns(value(x)) or dim % value(x).dim() != 1:
        return None
    if value(t_r).shape[0] != value(x).shape[1]:  # shared by channels: no kernel fuses it
        return None
    wide = [gradient, *(user for user in gradient.users if _is_wider(user))]
    sums = [user for g in wide for user in g.users if _is_sum(user)]
    for g in wide if sums else ():
        for product in g.users:
            dots = [user for user in product.users if _is_sum(user)]
            centred = _times_centred(product, g) if dots else None
            # What comes later than the gradient may depend on it.
            if centred and max(*centred, call) is call and _same_layout(centred[0], x):
                return BatchNormMatch(*centred, sums, dots, _recomputed_input(x, *centred))
    return None


def value(node: Any) -> Any:
    """The fake tensor of a node."""
    return node.meta["val"]


def _is_columns(x: Tensor) -> bool:
    """Whether the kernel can compute the sums: the channel changes with every element."""
    if x.dim() < 2 or not all(isinstance(size, int) for size in x.shape):
        return False
    view = layout.view(x, x.shape[1], 1)
    return view is not None and view.inner == 1 and view.channels > 1


def _same_layout(node: Any, other: Node) -> bool:
    """Whether both have one dtype, shape and stride."""
    a, b = value(node), value(other)
    return (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())


def _is_wider(node: Node) -> bool:
    """Whether it only converts a tensor to the dtype of the arithmetic."""
    return node.target is convert and node.args[1] == compute_dtype(value(node.args[0]))


def _is_sum(node: Node) -> bool:
    """Whether it is a sum over everything but dimension 1, in the dtype of the arithmetic."""
    if node.target is not aten.sum.dim_IntList or node.kwargs or len(node.args) != 2:
        return False
    summed: Any = node.args[1]
    axes = range(value(node.args[0]).dim())
    others = list(summed) == [axis for axis in axes if axis != 1]
    return others and value(node).dtype == compute_dtype(value(node))


def _times_centred(product: Node, gradient: Node) -> tuple[Node, Node] | None:
    """z and the mean, if it is ``gradient * (z - mean)``."""
    others = [a for a in product.args if a is not gradient]
    if product.target is not aten.mul.Tensor or len(others) != 1:
        return None
    return _centred(others[0])


def _centred(node: Any) -> tuple[Node, Node] | None:
    """z and the mean, if it is ``z - mean``, one for each channel."""
    if not _calls(node, aten.sub.Tensor) or not isinstance(node.args[0], Node):
        return None
    z = node.args[0].args[0] if _is_wider(node.args[0]) else node.args[0]
    mean = _per_channel(node.args[1], value(z))
    return None if mean is None else (z, mean)


def _recomputed_input(x: Node, z: Node, mean: Node) -> RecomputedInput | None:
    """What to recompute ``x`` from, if it is the normalised ``z``, or that plus an output of SReLU.

    Such an output is saved in any case, for the layer after it.
    """
    affine = _affine(x, z, mean)
    if affine is not None:
        return RecomputedInput(affine, None)
    if not _calls(x, aten.add.Tensor):
        return None
    for normalised, residual in (x.args, x.args[::-1]):
        affine = _affine(normalised, z, mean)
        if affine is not None and _is_output(residual) and _same_layout(residual, x):
            return RecomputedInput(affine, residual)  # type: ignore[arg-type]
    return None


def _is_output(node: Any) -> bool:
    return isinstance(node, Node) and node.target is torch.ops.torch_srelu.srelu.default


def _affine(x: Any, z: Node, mean: Node) -> tuple[Node, Node, Node] | None:
    """rstd, weight and bias, if ``x`` is nothing but the normalised ``z``."""
    total: Any = x.args[0] if isinstance(x, Node) and x.target is convert else x
    if not _calls(total, aten.add.Tensor) or value(x).dtype != value(z).dtype:
        return None
    product, bias = total.args
    if not (_calls(product, aten.mul.Tensor) and _calls(product.args[0], aten.mul.Tensor)):
        return None
    centred, rstd = product.args[0].args
    rstd, weight, bias = (_per_channel(n, value(z)) for n in (rstd, product.args[1], bias))
    if rstd is None or weight is None or bias is None or _centred(centred) != (z, mean):
        return None
    return (rstd, weight, bias) if _is_unmodified(bias) else None


def _is_unmodified(bias: Node) -> bool:
    """Whether the backward pass, which does not use it otherwise, would read the same value.

    What the compiled step writes into its inputs is at the end of the graph.
    """
    while bias.target is convert:
        bias = bias.args[0]  # type: ignore[assignment]
    writes = (user.target is aten.copy_.default and user.args[0] is bias for user in bias.users)
    return bias.op == "placeholder" and not any(writes)


def _calls(node: Any, target: Any) -> bool:
    return isinstance(node, Node) and node.target is target and not node.kwargs


def _per_channel(node: Any, z: Tensor) -> Node | None:
    """The tensor of one value per channel of ``z`` of which ``node`` is a view, if it is one."""
    if not isinstance(node, Node) or value(node).dtype != compute_dtype(z):
        return None
    shape, expected = value(node).shape, [1] * z.dim()
    expected[1] = z.shape[1]
    if [1] * (z.dim() - len(shape)) + list(shape) != expected:
        return None
    while node.target in _SHAPES and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _insert(like: Node, target: Any, *arguments: Any) -> Node:
    """A new node at the graph's insertion point, in the same partition as ``like``."""
    node = like.graph.call_function(target, arguments)
    first, *others = [value(a) if isinstance(a, Node) else a for a in arguments]
    node.meta = {k: v for k, v in like.meta.items() if k in ("partitioner_tag", "stack_trace")}
    if target is operator.getitem:
        node.meta["val"] = first[others[0]]
    else:
        with first.fake_mode:
            node.meta["val"] = target(first, *others)
    return node
