"""Any network, with SReLU where it had rectifiers, and the same outputs as before.

A run on fake tensors (`probe`, from `inputs`), of which nothing stays (`state`, `fakes`,
`leftovers`), shows every activation that is called, be it a module, a function or a method of a
tensor (`observer`), and where its channels are (`flow`, by the rules in `channels`). `plan` decides
what becomes of each: an activation module that is called in one place is swapped for its unit,
every other call is rewritten in the method that makes it (`rewrite`), unless the network would take
a unit for one of its layers (`asked`); what the run did not come to (`unreached`) and what torch
computes past any unit (`fused`) is listed. Nothing changes before everything is decided.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Container, Iterable
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from torch import nn
from torch.jit import ScriptModule

from ..module import SReLU
from . import conversion_record as record
from . import units
from .call_observer import slots_of
from .fused_calls import in_kernels
from .rectifiers import MODULES
from .replacement_plan import Site, keep_modules_whole, sites_of
from .source_rewriting import Edit, Position, exchange, rewritten_class
from .trial_run import observe
from .unreached_calls import unreached

__all__ = ["convert"]

Network = TypeVar("Network", bound=nn.Module)


def convert(
    model: Network,
    example: object = None,
    *,
    only: str | Iterable[str] | None = None,
    skip: str | Iterable[str] = (),
) -> Network:
    """Puts SReLU in the place of every ReLU, LeakyReLU, PReLU, ReLU6 and Hardtanh of a network.

    The network computes the same as before, bit for bit; what it gains are four trainable numbers
    per channel, or for all of a tensor where the channels of a layer cannot be followed to it, as
    in attention scores. On the input itself, before any layer, channels are in dimension 1 by
    convention, unless it has 3 dimensions. Modules, functions (``F.relu(x)``) and methods
    (``x.relu_()``) are replaced, in place or not, and each place that calls one gets its own unit,
    even where one module is called in several places. All else stays: the tree of modules, their
    classes (a module whose method is rewritten gets a subclass of the same name), hooks, parameters
    and their names, and the differences between training and evaluation. Functions become units
    named after them. The weight of a PReLU module becomes ``a_l`` of its unit, so load weights into
    it before; the one that ``F.prelu`` took stays where it was, unused from now on.

    `torch_srelu.summary` tells what was replaced, what was left as it was, and why.

    Args:
        model: The network. It is changed in place. Convert it before giving its parameters to an
            optimizer and before wrapping it (DistributedDataParallel, FSDP).
        example: What the network is called with: a tensor, a tuple of positional arguments or a
            dict of keyword arguments. Only its shapes matter, unless the network decides by values.
            Without it, an input is made up from the first layer.
        only: Names of modules as in ``named_modules()``, or patterns such as ``"layer[34].*"``:
            convert these and what is inside them, and nothing else.
        skip: Names or patterns of modules to leave as they are, with what is inside them.

    Returns:
        The same network.

    Raises:
        ValueError: The network has nothing to convert, or cannot be run without an example, or a
            name fits no module; the network is as it was. Or it keeps tensors that it computes in
            an object that is out of reach, where one without values is left now: the error says so.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from torch_srelu import convert
        >>> convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True)))
        Sequential(
          (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
          (1): SReLU(8, dim=-3)
        )
    """
    _check(model)
    only = None if only is None else _patterns(only, "only", model)
    skip = _patterns(skip, "skip", model)
    observed = observe(model, example)
    sites = sites_of(model, observed.calls)
    for site in sites:
        if (only is not None and not _fits(site.path, only)) or _fits(site.path, skip):
            site.problem = "not asked for"
            site.wanted = False
    keep_modules_whole([site for site in sites if site.wanted])
    missed = unreached(model, observed.calls) | in_kernels(model)
    left = missed | _left(model, sites)
    if observed.failure:
        left[model, "training mode"] = f"the example cannot be used in it: {observed.failure}"
    if not sites and not left and not any(isinstance(m, SReLU) for m in model.modules()):
        raise ValueError(
            f"{type(model).__name__} calls no ReLU, LeakyReLU, PReLU, ReLU6 or Hardtanh: "
            "there is nothing to convert"
        )
    chosen = [site for site in sites if not site.problem]
    if not chosen and (missed or any(site.wanted for site in sites)):
        warnings.warn(
            f"no activation of {type(model).__name__} could be converted: "
            "print(torch_srelu.summary(model)) tells why",
            stacklevel=2,
        )
    _apply(chosen)
    record.set_left(model, left)
    return model


def _check(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, ScriptModule):
        raise ValueError(
            "a scripted model has no source to rewrite: convert the model that was scripted. "
            "A converted one can be exported (torch.export) or traced (torch.jit.trace), "
            "but not scripted"
        )
    if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        raise ValueError(
            f"{type(model).__name__} has taken note of the parameters already: "
            "convert the network first, then wrap it"
        )
    if type(model) in MODULES:
        raise ValueError(
            f"the model is itself a {type(model).__name__} and cannot be changed in place: "
            "put it into nn.Sequential, or use torch_srelu.SReLU"
        )


def _patterns(given: str | Iterable[str], argument: str, model: nn.Module) -> list[str]:
    several = isinstance(given, Iterable) and not isinstance(given, str)
    patterns: list[Any] = list(given) if several else [given]
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(
                f"{argument} must be names of modules, got a {type(pattern).__name__}: give them "
                'as strings, such as "layer4" or ["0", "1"]'
            )
    names = [name for name, _ in model.named_modules() if name]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            children = ", ".join(name for name, _ in model.named_children())
            raise ValueError(
                f"{argument}={pattern!r} fits no module of {type(model).__name__}; "
                f"names are as in named_modules(), at the top there are: {children}"
            )
    return patterns


def _fits(path: str, patterns: list[str]) -> bool:
    """Whether a pattern fits the path or the path of something around it."""
    parts = path.split(".")
    around = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return any(fnmatchcase(name, pattern) for name in around for pattern in patterns)


def _left(model: nn.Module, sites: list[Site]) -> record.Left:
    """What stays, and why: {(the module that knows of it, what it is): why}."""
    left = {(s.holder or model, s.label): s.problem for s in sites if s.problem}
    called = {site.slot for site in sites}
    for slot in slots_of(model):
        if slot not in called:
            left[slot.module, type(slot.module).__name__] = "the run did not call it"
    for module in model.modules():
        if isinstance(module, ScriptModule):
            left[module, "what is in it"] = "scripted: there is no source to rewrite"
    return left


def _apply(sites: list[Site]) -> None:
    """Puts the units in. Everything that could fail comes first."""
    new: dict[tuple[nn.Module, str], nn.Module] = {}  # {(parent, name): unit or list of units}
    edits: dict[nn.Module, dict[str, dict[Position, Edit]]] = defaultdict(lambda: defaultdict(dict))
    for site in sites:
        if site.slot is not None and site.first:
            home = site.slot.parent, site.slot.name
        else:
            home = _free_name(site, new)
        new[home] = _unit(site)
        if site.rewritten and site.place is not None:
            owner, method, end = site.place.owner, site.place.method, site.place.end
            edits[owner][method][end] = Edit(home[1], site.place.form, site.loop)
    classes = {owner: rewritten_class(owner, methods) for owner, methods in edits.items()}
    for (parent, name), unit in new.items():
        setattr(parent, name, unit.train(parent.training))
    for owner, cls in classes.items():
        exchange(owner, cls, edits[owner])


def _unit(site: Site) -> nn.Module:
    made = [units.build(calls) for calls in site.groups]
    for i, unit in enumerate(made):
        if site.slot is not None:
            units.inherit(unit, site.slot.module, first=site.first and i == 0)
    return units.UnitPerTurn(made) if site.loop else made[0]


def _free_name(site: Site, taken: Container[tuple[nn.Module, str]]) -> tuple[nn.Module, str]:
    """A name for the unit in the module whose method calls it: relu, relu_2, relu_3, ..."""
    assert site.place is not None, "a call that is rewritten has a place"
    owner, name = site.place.owner, site.calls[0].activation.function
    if site.slot is not None and site.slot.name.isidentifier():
        name = site.slot.name
    names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2)))
    return next((owner, n) for n in names if not _has(owner, n) and (owner, n) not in taken)


def _has(module: nn.Module, name: str) -> bool:
    """Whether the module has an attribute of this name.

    One whose ``__getattr__`` has an answer to every name has those that it can be told to have.
    """
    if not hasattr(module, "_srelu_no_such_name"):
        return hasattr(module, name)
    own = (vars(module), module._parameters, module._buffers, module._modules)
    return hasattr(type(module), name) or any(name in names for names in own)
