"""SReLU whose channels are inferred from the module that it is put into.

For libraries that build an activation as ``act_layer()``, without its number of channels. An
`UnsizedSReLU` is initialized when the module that contains it is complete, that is, when this
module is registered in another one: a run of the module on fake tensors shows the input of the
unit. So the parameters exist when the network does: before an optimizer, DistributedDataParallel, a
state_dict or ``from_pretrained`` needs them.
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils.hooks import RemovableHandle

from .._torch_compat import CONVOLUTIONS, NORMS, initialize_lazy
from ..conversion import example_inputs
from ..conversion.call_observer import receiver
from ..conversion.channel_tracking import ChannelLayout, ChannelTracker
from ..conversion.fake_tensors import new_fake_mode
from ..conversion.trial_run import trial_conditions
from ..module import LazySReLU


class UnsizedSReLU(LazySReLU):
    """An `SReLU` whose channels are inferred from the module that it is put into.

    Where they cannot be inferred, it stays lazy until the first forward pass.

    Args:
        dim: The channel dimension where it cannot be inferred; None is PyTorch's convention.
    """

    by_previous_layer = True  # may take the channels of the layer registered before it

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(1 if dim is None else dim)
        self.default_dim = dim
        _uninitialized.add(self)

    def _declared_layout(self, parent: nn.Module) -> ChannelLayout | None:
        """The channels that the complete module around this one declares; None if it does not."""
        return None

    def _initialize(self, layout: ChannelLayout) -> None:
        """Becomes an SReLU of this size, with its channels in this dimension."""
        self.dim = -1  # of the stand-in for an input
        initialize_lazy(self, torch.empty(1, layout.channels, device="meta"))
        self.dim = layout.dim


class _UninitializedUnits:
    """The units without parameters; a hook observes the registration of modules meanwhile."""

    def __init__(self) -> None:
        self._units: weakref.WeakSet[UnsizedSReLU] = weakref.WeakSet()
        self._hook: RemovableHandle | None = None

    def add(self, unit: UnsizedSReLU) -> None:
        self._units.add(unit)
        if self._hook is None:
            self._hook = register_module_module_registration_hook(self._registered)

    def _registered(self, parent: nn.Module, name: str, child: nn.Module | None) -> None:
        """``child`` becomes a part of ``parent``, so it is complete."""
        if isinstance(child, UnsizedSReLU):
            if not _inside_another_init(sys._getframe(1), parent):
                _infer_from_previous_layer(child, parent)  # the network itself: no parent follows
        elif child is not None:
            for unit, around in _units_in(child):
                if layout := unit._declared_layout(around):
                    unit._initialize(layout)
            if units := [unit for unit, _ in _units_in(child)]:
                _infer_by_running(child, units)
        self._units = weakref.WeakSet(u for u in self._units if isinstance(u, UnsizedSReLU))
        if not self._units and self._hook is not None:
            self._hook.remove()
            self._hook = None


_uninitialized = _UninitializedUnits()


def _units_in(module: nn.Module) -> Iterator[tuple[UnsizedSReLU, nn.Module]]:
    """The units in ``module`` that are still uninitialized, each with its parent."""
    for parent in module.modules():
        for child in parent.children():
            if isinstance(child, UnsizedSReLU):
                yield child, parent


def _inside_another_init(frame: FrameType, module: nn.Module) -> bool:
    """Whether ``module`` is built within the ``__init__`` of another module."""
    outer = (caller for caller, _ in traceback.walk_stack(frame))
    builders = (receiver(caller) for caller in outer if caller.f_code.co_name == "__init__")
    return any(isinstance(b, nn.Module) and b is not module for b in builders)


def _infer_by_running(module: nn.Module, units: list[UnsizedSReLU]) -> None:
    """Runs ``module`` on fake tensors and initializes the units for their inputs."""
    mode = new_fake_mode()
    for candidate in example_inputs.candidates(module):
        try:
            with trial_conditions(module, False, mode):
                layouts = _input_layouts(module, mode.fake(candidate) if mode else candidate, units)
        except Exception:  # not an input of this module: the next one, or the next module around
            continue
        finally:
            if mode is not None:
                mode.warn_of_kept_tensors(type(module).__name__)
        for unit, layout in layouts.items():
            unit._initialize(layout)
        return
    for unit, parent in _units_in(module):
        _infer_from_previous_layer(unit, parent)


def _input_layouts(
    module: nn.Module, x: Tensor, units: list[UnsizedSReLU]
) -> dict[UnsizedSReLU, ChannelLayout]:
    """Runs ``module`` with the units as identities; where the channels of their inputs are."""
    layouts: dict[UnsizedSReLU, ChannelLayout] = {}

    def record(unit: UnsizedSReLU, x: Tensor) -> Tensor:
        channels, dim = tracker.layout(x, unit.default_dim)
        # Images come in batches: their channels are in dimension 1, as in SReLU(channels).
        layout = ChannelLayout(channels, dim if dim >= -1 else dim + x.dim())
        # Called on other channels before: one set of parameters serves them all.
        unchanged = layouts.get(unit, layout) == layout
        layouts[unit] = layout if unchanged else ChannelLayout(1, layout.dim)
        return x

    required = sum(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in inspect.signature(module.forward).parameters.values()
    )
    with ChannelTracker(module, x) as tracker:
        for unit in units:
            vars(unit)["forward"] = functools.partial(record, unit)
        module(x, *[None] * (required - 1))  # such as a mask, which may often be None
    return layouts


def _infer_from_previous_layer(unit: UnsizedSReLU, parent: nn.Module) -> None:
    """Initializes a unit by the convolution or norm that its parent registered just before it.

    Such layers are built in the order in which they run. Linear layers often are not: the two of a
    transformer's block come first, then the activation between them. Where the next convolution or
    norm takes another number of channels, something else feeds the unit, such as attention whose
    heads the layer before mixes: it stays lazy.
    """
    children = [c for c in parent.children() if not isinstance(c, nn.Identity)]
    place = children.index(unit) if unit in children else len(children)  # not registered yet
    if not unit.by_previous_layer or place == 0:
        return
    channels = _channels(children[place - 1], "out_channels")
    behind = (layer for child in children[place + 1 :] for layer in child.modules())
    taken = next(filter(None, (_channels(layer, "in_channels") for layer in behind)), channels)
    if channels and channels == taken:
        unit._initialize(ChannelLayout(channels, 1))


def _channels(layer: Any, side: str) -> int | None:
    """How many channels a convolution has on a side, or a norm on both; 0 if it is lazy."""
    if isinstance(layer, CONVOLUTIONS):
        return getattr(layer, side)
    return layer.num_features if isinstance(layer, NORMS) else None
