"""The SReLU modules that replace activations."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ..module import SReLU
from .call_observer import ActivationCall
from .trial_run import HOOKS


class InPlaceSReLU(SReLU):
    """An `SReLU` that writes its result into its input, as ``nn.ReLU(inplace=True)`` does.

    `convert` uses it only where something reads the input again after an in-place activation.

    Attributes:
        read_by_network: Whether the network itself does, so that gradients must flow there too.

    Example:
        >>> import torch
        >>> from torch_srelu.conversion.units import InPlaceSReLU
        >>> x = torch.tensor([[-1.0, 2.0]])
        >>> y = InPlaceSReLU(2, a_l=0.5)(x)
        >>> x
        tensor([[-0.5000,  2.0000]], grad_fn=<CopyBackwards>)
    """

    read_by_network = True

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x.clone())  # backward needs the input as it was
        if self.read_by_network or x.requires_grad:
            return x.copy_(y)
        # A graph in the caller's data would outlive the backward pass, and be part of the next.
        x.detach().copy_(y.detach())
        return y

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, in place"


class UnitPerIteration(nn.ModuleList):
    """The units of an activation in a loop over layers. Called only after the last of them."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError(
            f"the loop had {len(self)} iterations when the network was converted and has more now: "
            "convert the network with an example for which the loop is longest"
        )


def build_unit(calls: list[ActivationCall]) -> SReLU:
    """The unit that computes what these calls of one activation do, with trainable parameters."""
    call = calls[0]
    activation, (channels, dim) = call.activation, call.layout
    slope = activation.slope
    if slope is not None and slope.numel() > 1:
        channels, dim = slope.numel(), 1  # as PReLU has it
    read_by_network = any(c.read_again for c in calls)
    in_place = read_by_network or any(c.seen_outside for c in calls)
    kind = InPlaceSReLU if in_place else SReLU
    dtype = torch.float64 if call.dtype == torch.float64 else torch.float32
    with torch.inference_mode(False):
        unit = kind(channels, dim, **activation.initial, device=call.device, dtype=dtype)
        if slope is not None:
            with torch.no_grad():
                unit.a_l.copy_(slope)  # one slope for all channels is repeated
    if isinstance(unit, InPlaceSReLU):
        unit.read_by_network = read_by_network
    vars(unit)["replaced"] = activation.name  # which `summary` shows
    return unit


def inherit_hooks(unit: nn.Module, replaced: nn.Module, first: bool) -> None:
    """Gives the hooks of the replaced module to the unit.

    Args:
        unit: The unit.
        replaced: The activation module that it replaces.
        first: Whether it is the first that replaces this module. The first takes over the very
            collections of hooks, so that the handles of the hooks can still remove them.
    """
    for name in HOOKS:
        hooks = vars(replaced)[name]
        object.__setattr__(unit, name, hooks if first else copy.copy(hooks))
