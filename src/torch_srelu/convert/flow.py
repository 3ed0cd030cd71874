"""Follows the channels of every tensor through a run of the network."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary


class Layout(NamedTuple):
    """How many channels a tensor has and in which dimension they are."""

    channels: int
    dim: int


class _Tag(NamedTuple):
    dim: int | None  # where the channels are; None: nobody knows any more
    layer: int  # identity of the last parameter on the way here: which layer made this tensor


class Flow(TorchFunctionMode):
    """While active, `layout` and `layer` tell for any tensor of the run where it comes from.

    A convolution puts channels in dimension 1, a linear layer in dimension -1, a permutation moves
    them, and everything else leaves them where they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tags = WeakTensorKeyDictionary()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.follow(func, args, kwargs, out)
        return out

    def follow(self, func, args, kwargs, out) -> None:
        """Notes where the channels of the outputs of a call are."""
        made = _tensors(out)
        if not made:
            return
        given = _tensors((args, kwargs))
        source = next((t for t in given if t in self._tags), None)
        tag = None if source is None else self._tags[source]
        layer = next((id(t) for t in given if isinstance(t, nn.Parameter)), tag and tag.layer)
        for y in made:
            dim = _channel_dim(func, args, kwargs, y, source, tag and tag.dim)
            if layer is not None:
                self._tags[y] = _Tag(dim, layer)

    def layout(self, x: Tensor, otherwise: int | None = None) -> Layout:
        """The channels of ``x``: where they were followed to, else in dimension ``otherwise``.

        Without one, by PyTorch's convention.
        """
        tag = self._tags.get(x)
        if tag is not None and tag.dim is not None and -x.dim() <= tag.dim < x.dim():
            return Layout(x.shape[tag.dim], tag.dim)
        if otherwise is not None:
            return Layout(x.shape[otherwise], otherwise)
        if x.dim() < 2 or x.dim() == 3:
            # No channels, or nobody knows whether (N, C, L) or (N, L, C), and L may vary: one unit
            # for all of it is right in any case.
            return Layout(1, 1)
        return Layout(x.shape[1], 1)

    def layer(self, x: Tensor) -> int | None:
        """Which layer made ``x``: equal for equal layers."""
        tag = self._tags.get(x)
        return tag and tag.layer


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


_CONVOLUTIONS = {
    F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d,
}  # fmt: skip
_CHANNELS_SECOND = {F.batch_norm, F.instance_norm, F.group_norm}
_CHANNELS_LAST = {F.linear, F.layer_norm, F.rms_norm, F.embedding}
_PRODUCTS = {torch.addmm, torch.mm, torch.matmul, Tensor.matmul, Tensor.mm, Tensor.__matmul__}
_PERMUTATIONS = {
    torch.permute, Tensor.permute, torch.transpose, Tensor.transpose, torch.movedim, Tensor.movedim,
    torch.swapaxes, Tensor.swapaxes, torch.swapdims, Tensor.swapdims, torch.t, Tensor.t,
    Tensor.T.__get__, Tensor.mT.__get__,  # type: ignore[attr-defined]
    torch.adjoint, Tensor.adjoint,
}  # fmt: skip


def _channel_dim(func, args, kwargs, out: Tensor, source: Tensor | None, dim: int | None):
    if func in _CONVOLUTIONS:
        weight = args[1] if len(args) > 1 else kwargs["weight"]
        return out.dim() - weight.dim() + 1  # 1, or 0 for an input without a batch dimension
    if func in _CHANNELS_SECOND:
        return 1
    if func in _CHANNELS_LAST:
        return -1
    if func in _PRODUCTS:  # with a weight: a layer; without one, as in attention: no channels
        return -1 if any(isinstance(t, nn.Parameter) for t in args) else None
    if source is None or dim is None:
        return None
    if func in _PERMUTATIONS and source is args[0]:
        # Done once more on a tensor without memory whose sizes are all different.
        sizes = torch.empty(tuple(range(2, 2 + source.dim())), device="meta")
        return func(sizes, *args[1:], **kwargs).shape.index(sizes.shape[dim])
    kept = -out.dim() <= dim < out.dim() and out.shape[dim] == source.shape[dim]
    return dim if kept or out.dim() == source.dim() else None
