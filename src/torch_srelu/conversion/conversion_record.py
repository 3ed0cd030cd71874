"""What convert notes for `torch_srelu.summary`: plain attributes that travel with copies."""

from __future__ import annotations

from collections import defaultdict

from torch import nn

from ..module import SReLU

_LEFT = "_srelu_left"  # on a module: {activation: why convert left it}
_REPLACED = "replaced"  # on a unit: the name of the activation that it replaced

Left = dict[tuple[nn.Module, str], str]  # {(the module that knows of it, the activation): why}


def set_left(model: nn.Module, left: Left) -> None:
    """Notes what was left; forgets what an earlier conversion had noted."""
    notes: dict[nn.Module, dict[str, str]] = defaultdict(dict)
    for (module, activation), why in left.items():
        notes[module][activation] = why
    for module in model.modules():
        vars(module).pop(_LEFT, None)
    for module, note in notes.items():
        vars(module)[_LEFT] = note


def left_in(module: nn.Module) -> dict[str, str]:
    """The activations that convert left in this module itself, and why."""
    return vars(module).get(_LEFT, {})


def set_replaced(unit: SReLU, activation: str) -> None:
    """Notes what a unit replaced."""
    vars(unit)[_REPLACED] = activation


def replaced_by(unit: SReLU) -> str:
    """The name of the activation that this unit replaced; empty if it replaced none."""
    return vars(unit).get(_REPLACED, "")
