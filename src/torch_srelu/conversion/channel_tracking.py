"""Tracks which dimension of every tensor holds the channels during a run of a network."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from . import channel_rules
from .channel_rules import TensorInfo, TracedCall, tensors_in


class ChannelLayout(NamedTuple):
    """How many channels a tensor has and in which dimension they are."""

    channels: int
    dim: int


_SHARED = ChannelLayout(1, 1)  # one set of parameters for all of a tensor: fits every shape
_NO_LAYERS: frozenset[int] = frozenset()
_UNKNOWN = TensorInfo(None, _NO_LAYERS, "computed")  # made where no mode sees it: scripted code


class ChannelTracker(TorchFunctionMode):
    """While active, tracks the channels of every tensor; `layout` and `info` return them.

    A convolution puts channels in the dimension before those of the image, a linear layer in the
    last one, a permutation moves them; the rules are in `channel_rules`. The run must be that of
    ``model`` on ``inputs``.
    """

    def __init__(self, model: nn.Module, inputs: object) -> None:
        super().__init__()
        self._infos = WeakTensorKeyDictionary()
        for t in model.buffers():
            self._infos[t] = TensorInfo(None, _NO_LAYERS, "fixed")
        for t in itertools.chain(model.parameters(), _computed_weights(model)):
            self._infos[t] = TensorInfo(None, frozenset([id(t)]), "fixed")
        for t in tensors_in(inputs):
            self._infos[t] = TensorInfo(None, _NO_LAYERS, "input")

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.record(func, args, kwargs, out)
        return out

    def record(self, func, args, kwargs, out) -> None:
        """Records where the channels of the results of a call are."""
        results = tensors_in(out)
        if not results:
            return
        infos = [self.info(t) for t in tensors_in((args, kwargs))]
        name, kinds = channel_rules.name_of(func), {info.kind for info in infos}
        if kinds == {"fixed"} and name not in channel_rules.TAKE_SIZES:
            kind = "fixed"
        elif kinds in ({"input"}, {"fixed", "input"}) and channel_rules.is_pointwise(name):
            kind = "input"
        else:
            kind = "computed"
        weights = frozenset().union(*(info.layers for info in infos if info.kind == "fixed"))
        layers = weights or frozenset().union(*(info.layers for info in infos))
        for y in results:
            dim = channel_rules.channel_dim(TracedCall(func, args, kwargs, y, self.info))
            self._infos[y] = TensorInfo(dim, layers, kind)

    def layout(self, x: Tensor, default_dim: int | None = None) -> ChannelLayout:
        """The channels of ``x``; where they are not known, those of ``default_dim``.

        Without a default, an input of the network has them in dimension 1, by convention.
        """
        info = self.info(x)
        if info.dim is not None:
            return ChannelLayout(x.shape[info.dim], info.dim)
        if default_dim is not None:
            return ChannelLayout(x.shape[default_dim], default_dim)
        if info.kind == "input" and x.dim() not in (0, 1, 3):
            # Of rank 3, it may be (N, C, L) or (N, L, C), and L may vary.
            return ChannelLayout(x.shape[1], 1 - x.dim())
        return _SHARED

    def info(self, x: Tensor) -> TensorInfo:
        """What is known of ``x``; its layers: equal for equal layers, all of those in a sum."""
        return self._infos.get(x) or _UNKNOWN


def _computed_weights(model: nn.Module) -> Iterator[Tensor]:
    """The weights that hooks compute from parameters such as weight_orig: pruning, old norms."""
    for module in model.modules():
        parameters = [name for name, _ in module.named_parameters(recurse=False)]
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and any(p.startswith(f"{name}_") for p in parameters):
                yield value
