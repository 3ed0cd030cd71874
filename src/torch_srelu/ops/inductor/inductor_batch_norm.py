"""Batch normalisation before SReLU, found in the graph of a training step.

torch.compile writes its backward pass out, for the gradient ``g`` of its output, its input ``z``
and the ``mean`` of each channel, as far as it concerns us as

    sum(g)    sum(g * (z - mean))        over everything but the channels

and its forward pass as ``(z - mean) * rstd * weight + bias``, each in the dtype of the arithmetic
and then rounded. A residual may be added to that. Whatever is written in another way is not taken
for one.
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

_SHAPES = (
    aten.unsqueeze.default,
    aten.squeeze.dims,
    aten.view.default,
    aten.reshape.default,
)


class Made(NamedTuple):
    """What SReLU's input is made of, besides z and the mean."""

    numbers: tuple[Node, Node, Node]  # rstd, weight, bias
    residual: Node | None


class FoundNorm(NamedTuple):
    """A normalisation by its nodes: what it was given, numbers of its channels, sums it takes."""

    z: Node
    mean: Node
    sums: list[Node]  # of the gradient
    dots: list[Node]  # of the gradient times (z - mean)
    made: Made | None  # SReLU's input

    def write_before(self, call: Node) -> list[Node | None]:
        """The fields of a `joined.Norm`."""
        channels = (value(self.z).shape[1],)
        with call.graph.inserting_before(call):
            mean = _make(call, aten.reshape.default, self.mean, channels)
            if self.made is None:
                return [self.z, mean, None, None, None]
            rstd, weight, shift = (
                _make(call, aten.reshape.default, n, channels) for n in self.made.numbers
            )
            scale = _make(call, aten.mul.Tensor, rstd, weight)
            return [self.z, mean, scale, shift, self.made.residual]

    def take_sums(self, call: Node) -> None:
        """Puts the operator's third result in the place of the sums."""
        with call.graph.inserting_after(call):
            moments = _make(call, operator.getitem, call, 2)
        for row, replaced in enumerate((self.sums, self.dots)):
            for node in replaced:
                with call.graph.inserting_after(moments):
                    taken = _make(node, aten.select.int, moments, 0, row)
                node.replace_all_uses_with(taken)


def find_norm(call: Node, x: Node, t_r: Node, dim: int) -> FoundNorm | None:
    """The normalisation that needs sums of the gradient of ``x``, which ``call`` returns first."""
    gradient = next((user for user in call.users if user.args[1:] == (0,)), None)
    if gradient is None or not _in_columns(value(x)) or dim % value(x).dim() != 1:
        return None
    if value(t_r).shape[0] != value(x).shape[1]:  # shared by channels: no kernel takes them along
        return None
    wide = [gradient, *(user for user in gradient.users if _is_wider(user))]
    sums = [user for g in wide for user in g.users if _is_sum(user)]
    for g in wide if sums else ():
        for product in g.users:
            dots = [user for user in product.users if _is_sum(user)]
            centred = _times_centred(product, g) if dots else None
            # What comes later than the gradient may be made of it.
            if centred and max(*centred, call) is call and _alike(value(centred[0]), value(x)):
                return FoundNorm(*centred, sums, dots, _made(x, *centred))
    return None


def value(node: Any) -> Any:
    """What a node stands for, as a fake tensor."""
    return node.meta["val"]


def _in_columns(x: Tensor) -> bool:
    """Whether our kernel takes the sums along: channels change with every element."""
    if x.dim() < 2 or not all(isinstance(size, int) for size in x.shape):
        return False
    view = layout.view(x, x.shape[1], 1)
    return view is not None and view.inner == 1 and view.channels > 1


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether both have one dtype and lie in memory alike."""
    return (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())


def _is_wider(node: Node) -> bool:
    """Whether it only brings a tensor to the dtype of the arithmetic."""
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
    mean = _of_channels(node.args[1], value(z))
    return None if mean is None else (z, mean)


def _made(x: Node, z: Node, mean: Node) -> Made | None:
    """What ``x`` is made of, if it is the normalised ``z``, or that and an output of SReLU.

    Such an output is kept in any case, for the layer behind it.
    """
    numbers = _affine(x, z, mean)
    if numbers is not None:
        return Made(numbers, None)
    if not _calls(x, aten.add.Tensor):
        return None
    for normalised, residual in (x.args, x.args[::-1]):
        numbers = _affine(normalised, z, mean)
        if numbers is not None and _is_output(residual) and _alike(value(residual), value(x)):
            return Made(numbers, residual)  # type: ignore[arg-type]
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
    rstd, weight, bias = (_of_channels(n, value(z)) for n in (rstd, product.args[1], bias))
    if rstd is None or weight is None or bias is None or _centred(centred) != (z, mean):
        return None
    if not _stays(bias):
        return None
    return rstd, weight, bias


def _stays(bias: Node) -> bool:
    """Whether it is the same in the backward pass, where nobody else would ask for it.

    What the compiled step writes into its inputs stands at the end of the graph.
    """
    while bias.target is convert:
        bias = bias.args[0]  # type: ignore[assignment]
    writes = (user.target is aten.copy_.default and user.args[0] is bias for user in bias.users)
    return bias.op == "placeholder" and not any(writes)


def _calls(node: Any, target: Any) -> bool:
    return isinstance(node, Node) and node.target is target and not node.kwargs


def _of_channels(node: Any, z: Tensor) -> Node | None:
    """What holds a number for each channel of ``z``, in any shape, if ``node`` shows just that."""
    if not isinstance(node, Node) or value(node).dtype != compute_dtype(z):
        return None
    shape, expected = value(node).shape, [1] * z.dim()
    expected[1] = z.shape[1]
    if [1] * (z.dim() - len(shape)) + list(shape) != expected:
        return None
    while node.target in _SHAPES and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _make(like: Node, target: Any, *arguments: Any) -> Node:
    """A new node where the graph inserts, of the same part of the step as ``like``."""
    made = like.graph.call_function(target, arguments)
    first, *others = [value(a) if isinstance(a, Node) else a for a in arguments]
    made.meta = {k: v for k, v in like.meta.items() if k in ("partitioner_tag", "stack_trace")}
    if target is operator.getitem:
        made.meta["val"] = first[others[0]]
    else:
        with first.fake_mode:
            made.meta["val"] = target(first, *others)
    return made
