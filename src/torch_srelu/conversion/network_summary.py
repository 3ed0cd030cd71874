"""Lists every SReLU of a network, and the activations that `torch_srelu.convert` left unchanged.

`convert` stores what is not seen otherwise in plain attributes, which travel with copies.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .._data_parallel import full_tensor
from .._text import counted, text_table
from ..module import NAMES, SReLU, check_is_module
from .rectifiers import MODULES

_LEFT = "_srelu_left"  # on a module: {activation: why convert left it}


@dataclass(frozen=True)
class MeanAndStd:
    """Mean and standard deviation of a parameter over the channels of a unit."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.std:.2g}" if self.std else f"{self.mean:.3g}"


@dataclass(frozen=True)
class UnitSummary:
    """One SReLU; without parameters if they have no values yet (lazy, or on meta)."""

    where: str
    channels: int  # 0 if unknown
    dim: int | None  # of the channels; None if they share their parameters
    replaced: str  # the activation that it replaced; empty if it replaced none
    parameters: dict[str, MeanAndStd]  # by name: t_r, a_r, t_l, a_l
    crossed: int  # channels with t_l > t_r


@dataclass(frozen=True)
class LeftActivation:
    """An activation that was left unchanged."""

    where: str
    activation: str
    why: str


@dataclass(frozen=True)
class Summary:
    """The result of `summary`. Prints as a table."""

    units: tuple[UnitSummary, ...]
    left: tuple[LeftActivation, ...]

    def __str__(self) -> str:
        channels = sum(unit.channels for unit in self.units)
        blocks = [
            f"{counted(len(self.units), 'SReLU unit')}, {counted(channels, 'channel')}, "
            f"{counted(len(NAMES) * channels, 'parameter')}"
        ]
        if self.units:
            head = ("unit", "channels", "dim", "replaced", *NAMES, "crossed")
            blocks.append(text_table(head, map(_row, self.units), numbers={1, 2, 8}))
        if self.left:
            blocks.append(f"{counted(len(self.left), 'activation')} left unchanged")
            rows = ((x.where or "(the network)", x.activation, x.why) for x in self.left)
            blocks.append(text_table(("module", "activation", "why"), rows))
        return "\n\n".join(blocks)


def summary(model: nn.Module) -> Summary:
    """Lists every SReLU of a network, and every activation that `torch_srelu.convert` left.

    For each unit: its name, its number of channels and their dimension (``-`` if all channels share
    one set of parameters), what it replaced, the mean and the standard deviation of its parameters
    over the channels, and how many channels are crossed (``t_l > t_r``, which training does produce
    and the function allows).

    Args:
        model: Any network, or a part of one.

    Returns:
        An object that prints as a table and holds the rows in ``units`` and ``left``.

    Example:
        >>> from torch import nn
        >>> import torch_srelu as ts
        >>> print(ts.summary(ts.convert(nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.1)))))
        1 SReLU unit, 8 channels, 32 parameters
        <BLANKLINE>
        unit  channels  dim  replaced   t_r  a_r  t_l  a_l  crossed
        1            8   -1  LeakyReLU  1    1    0    0.1        0
    """
    check_is_module(model)
    units, left = [], []
    for where, module in model.named_modules():
        if isinstance(module, SReLU):
            units.append(_unit(where, module))
        notes = vars(module).get(_LEFT, {})
        left += [LeftActivation(where, activation, why) for activation, why in notes.items()]
        if type(module) in MODULES and not notes:
            left.append(
                LeftActivation(where, type(module).__name__, "convert was not called on it")
            )
    return Summary(tuple(units), tuple(left))


def note_left(model: nn.Module, left: dict[tuple[nn.Module, str], str]) -> None:
    """Stores why `convert` left activations: {(module, activation): why}."""
    notes: dict[nn.Module, dict[str, str]] = defaultdict(dict)
    for (module, activation), why in left.items():
        notes[module][activation] = why
    for module in model.modules():
        vars(module).pop(_LEFT, None)
    for module, note in notes.items():
        vars(module)[_LEFT] = note


def _unit(where: str, unit: SReLU) -> UnitSummary:
    dim = None if unit.num_channels == 1 else unit.dim
    replaced = vars(unit).get("replaced", "")
    names = () if is_lazy(unit.t_r) or unit.t_r.is_meta else NAMES
    values = {name: full_tensor(getattr(unit, name)).to("cpu", torch.float64) for name in names}
    spreads = {
        name: MeanAndStd(value.mean().item(), value.std(correction=0).item())
        for name, value in values.items()
    }
    crossed = int((values["t_l"] > values["t_r"]).sum()) if values else 0
    return UnitSummary(where, unit.num_channels, dim, replaced, spreads, crossed)


def _row(unit: UnitSummary) -> tuple[str, ...]:
    dim = "-" if unit.dim is None else str(unit.dim)
    crossed = str(unit.crossed) if unit.parameters else "?"
    parameters = (str(unit.parameters.get(name, "?")) for name in NAMES)
    return (unit.where, str(unit.channels or "?"), dim, unit.replaced, *parameters, crossed)
