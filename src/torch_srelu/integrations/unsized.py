"""SReLU for libraries that build an activation without saying how many channels it will have.

Such a library calls ``act_layer()`` and puts the result into a module. `UnsizedSReLU` waits for
that module to be finished, which shows when it is itself put into another one, runs it alone on
fake tensors and takes its size from what arrives. So the parameters exist when the network does:
before an optimizer, DistributedDataParallel, a state_dict or ``from_pretrained`` asks for them.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from types import FrameType

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils.hooks import RemovableHandle

from ..conversion import example_inputs
from ..conversion.channel_tracking import ChannelLayout, ChannelTracker
from ..conversion.fake_tensors import new_fake_mode
from ..conversion.trial_run import trial_conditions
from ..module import LazySReLU


class UnsizedSReLU(LazySReLU):
    """An `SReLU` that learns where its channels are from the module that it is put into.

    Where that cannot be told it stays lazy, until the first forward pass.

    Args:
        dim: The channel dimension where no layer around tells it; None is PyTorch's convention.
    """

    beside = True  # the layer registered just before may be taken for the one that feeds this

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(1 if dim is None else dim)
        self.otherwise = dim
        _waiting.add(self)

    def told_by(self, parent: nn.Module) -> ChannelLayout | None:
        """The size, where the library has its way to say it in the finished module around."""
        return None

    def take(self, layout: ChannelLayout) -> None:
        """Becomes an SReLU of this size, with its channels in this dimension."""
        self.dim = -1  # of the stand-in for an input, whose last dimension are the channels
        self._infer_parameters(self, (torch.empty(1, layout.channels, device="meta"),))  # type: ignore[misc]
        self.dim = layout.dim


class _Waiting:
    """The units that have no size yet. Watches the building of modules while there are any."""

    def __init__(self) -> None:
        self._units: weakref.WeakSet[UnsizedSReLU] = weakref.WeakSet()
        self._watch: RemovableHandle | None = None

    def add(self, unit: UnsizedSReLU) -> None:
        self._units.add(unit)
        if self._watch is None:
            self._watch = register_module_module_registration_hook(self._registered)

    def _registered(self, parent: nn.Module, name: str, child: nn.Module | None) -> None:
        """``child`` becomes a part of ``parent``, so it is complete."""
        if isinstance(child, UnsizedSReLU):
            if not _another_is_being_built(sys._getframe(1), parent):
                _size_by_neighbour(child, parent)  # this is the network itself: nobody takes it in
        elif child is not None:
            _size_by_word(child)
            inside = [m for m in child.modules() if isinstance(m, UnsizedSReLU)]
            if inside:
                _size_by_run(child, inside)
        self._units = weakref.WeakSet(u for u in self._units if isinstance(u, UnsizedSReLU))
        if not self._units and self._watch is not None:
            self._watch.remove()
            self._watch = None


_waiting = _Waiting()


def _another_is_being_built(frame: FrameType | None, module: nn.Module) -> bool:
    """Whether the building of ``module`` is a part of the building of another one."""
    while frame is not None:
        if frame.f_code.co_name == "__init__":
            builder = frame.f_locals.get(frame.f_code.co_varnames[0])
            if isinstance(builder, nn.Module) and builder is not module:
                return True
        frame = frame.f_back
    return False


def _size_by_word(module: nn.Module) -> None:
    """Sizes the units in ``module`` of which the modules around them tell the size."""
    for parent in module.modules():
        for child in parent.children():
            if isinstance(child, UnsizedSReLU) and (layout := child.told_by(parent)):
                child.take(layout)


def _size_by_run(module: nn.Module, waiting: list[UnsizedSReLU]) -> None:
    """Runs ``module`` on shapes and sizes the units by what they get."""
    mode = new_fake_mode()
    for candidate in example_inputs.candidates(module):
        seen: dict[UnsizedSReLU, ChannelLayout] = {}
        try:
            with trial_conditions(module, False, mode):
                _watch_run(module, mode.fake(candidate) if mode else candidate, waiting, seen)
        except Exception:  # not an input of this module: the next one, or the next module around
            continue
        finally:
            if mode is not None:
                mode.warn_of_kept_tensors(type(module).__name__)
        for unit, layout in seen.items():
            unit.take(layout)
        return
    for parent in module.modules():
        for child in parent.children():
            if isinstance(child, UnsizedSReLU) and child.beside:
                _size_by_neighbour(child, parent)


def _watch_run(
    module: nn.Module,
    x: Tensor,
    waiting: list[UnsizedSReLU],
    seen: dict[UnsizedSReLU, ChannelLayout],
) -> None:
    """Runs ``module`` with units that only note what they get, and give it back."""

    def note(unit: UnsizedSReLU, x: Tensor) -> Tensor:
        channels, dim = flow.layout(x, unit.otherwise)
        # Images come in batches: their channels are in dimension 1, as in SReLU(channels).
        layout = ChannelLayout(channels, dim if dim >= -1 else dim + x.dim())
        # Called on other channels before: one set of parameters serves them all.
        seen[unit] = layout if seen.get(unit, layout) == layout else ChannelLayout(1, layout.dim)
        return x

    with ChannelTracker(module, x) as flow:
        for unit in waiting:
            vars(unit)["forward"] = functools.partial(note, unit)
        module(x, *[None] * (_required(module) - 1))  # such as a mask: often, None is none


def _required(module: nn.Module) -> int:
    """How many arguments ``module`` must be given."""
    return sum(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in inspect.signature(module.forward).parameters.values()
    )


def _size_by_neighbour(unit: UnsizedSReLU, parent: nn.Module) -> None:
    """Sizes a unit by the convolution or norm that was put into the same module just before it.

    Such layers are built in the order in which they run. Linear layers often are not: the two of a
    transformer's block come first, then the activation between them. Where the next convolution or
    norm takes another number of channels, something else feeds the unit, such as attention of
    which the layer before mixes the heads: it stays lazy.
    """
    children = [c for c in parent.children() if not isinstance(c, nn.Identity)]  # switched off
    place = children.index(unit) if unit in children else len(children)  # it is about to be put in
    if not unit.beside or place == 0:
        return
    channels = _channels(children[place - 1], "out_channels")
    behind = (layer for child in children[place + 1 :] for layer in child.modules())
    taken = next(filter(None, (_channels(layer, "in_channels") for layer in behind)), channels)
    if channels and channels == taken:
        unit.take(ChannelLayout(channels, 1))


def _channels(layer: nn.Module, side: str) -> int | None:
    """How many channels a convolution has on a side, or a norm on both; 0 if it is lazy."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        return getattr(layer, side)
    return layer.num_features if isinstance(layer, nn.modules.batchnorm._NormBase) else None
