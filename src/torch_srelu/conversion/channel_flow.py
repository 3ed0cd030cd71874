"""Follows the channels of every tensor through a run of the network."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from .channel_rules import Step, Tag, channel_dim, cuts, name_of, pointwise, tensors


class Layout(NamedTuple):
    """How many channels a tensor has and in which dimension they are."""

    channels: int
    dim: int


_SHARED = Layout(1, 1)  # one unit for all of it: right for every shape
_NOBODY: frozenset[int] = frozenset()
_UNKNOWN = Tag(None, _NOBODY, "made")  # by code that no mode sees, such as scripted functions


class Flow(TorchFunctionMode):
    """While active, `layout` and `layers` tell for any tensor of the run where it comes from.

    A convolution puts channels in the dimension before those of the image, a linear layer in the
    last one, a permutation moves them; the rules are in `channels`. The run must be that of
    ``model`` on ``inputs``.
    """

    def __init__(self, model: nn.Module, inputs: object) -> None:
        super().__init__()
        self._tags = WeakTensorKeyDictionary()
        for t in model.buffers():
            self._tags[t] = Tag(None, _NOBODY, "fixed")
        for t in itertools.chain(model.parameters(), _computed(model)):
            self._tags[t] = Tag(None, frozenset([id(t)]), "fixed")
        for t in tensors(inputs):
            self._tags[t] = Tag(None, _NOBODY, "input")

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.follow(func, args, kwargs, out)
        return out

    def follow(self, func, args, kwargs, out) -> None:
        """Notes where the channels of the outputs of a call are."""
        made = tensors(out)
        if not made:
            return
        tags = [self._tag(t) for t in tensors((args, kwargs))]
        name, kinds = name_of(func), {tag.kind for tag in tags}
        if kinds == {"fixed"} and not cuts(name):
            kind = "fixed"
        elif kinds == {"input"} or kinds == {"fixed", "input"}:
            kind = "input" if pointwise(name) else "made"
        else:
            kind = "made"
        weights = frozenset().union(*(tag.layers for tag in tags if tag.kind == "fixed"))
        layers = weights or frozenset().union(*(tag.layers for tag in tags))
        for y in made:
            dim = channel_dim(Step(func, args, kwargs, y, self._tag))
            self._tags[y] = Tag(dim, layers, kind)

    def layout(self, x: Tensor, otherwise: int | None = None) -> Layout:
        """The channels of ``x``: where they were followed to, else in dimension ``otherwise``.

        Without one, by convention for an input.
        """
        tag = self._tag(x)
        if tag.dim is not None:
            return Layout(x.shape[tag.dim], tag.dim)
        if otherwise is not None:
            return Layout(x.shape[otherwise], otherwise)
        if tag.kind == "input" and x.dim() not in (0, 1, 3):
            # Of rank 3, nobody knows whether it is (N, C, L) or (N, L, C), and L may vary.
            return Layout(x.shape[1], 1 - x.dim())
        return _SHARED

    def layers(self, x: Tensor) -> frozenset[int]:
        """Which layers made ``x``: equal for equal layers, and all that a sum came from."""
        return self._tag(x).layers

    def _tag(self, x: Tensor) -> Tag:
        return self._tags.get(x) or _UNKNOWN


def _computed(model: nn.Module) -> Iterator[Tensor]:
    """The weights that hooks compute from parameters, such as weight_orig: pruning, old norms."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and any(
                parameter.startswith(f"{name}_") for parameter in module._parameters
            ):
                yield value
