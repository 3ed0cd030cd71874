"""Replaces the activations of a network by SReLU, with the same outputs as before.

A trial run on fake tensors (`trial_run`, from `example_inputs`), which leaves no trace
(`fake_tensors`), shows every activation that is called, be it a module, a function
or a method of a tensor (`call_observer`), and where its channels are (`channel_tracking`, by the
rules in `channel_rules`). `replacement_plan` decides what becomes of each: an activation module
that is called at one site is replaced by its unit, every other call is rewritten in the method that
makes it (`source_rewriting`). What the run did not reach (`unreached_calls`) and what a fused
kernel of torch computes is listed. Nothing changes before all is decided.
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

from ..module import SReLU, check_is_module
from .call_observer import slots_of
from .network_summary import note_left
from .rectifiers import MODULES
from .replacement_plan import Replacement, keep_modules_whole, plan_replacements
from .source_rewriting import CallEdit, Position, rewritten_class, set_class
from .trial_run import run_on_trial
from .units import UnitPerIteration, build_unit, inherit_hooks
from .unreached_calls import unreached_calls

Network = TypeVar("Network", bound=nn.Module)


def convert(
    model: Network,
    example: object = None,
    *,
    only: str | Iterable[str] | None = None,
    skip: str | Iterable[str] = (),
) -> Network:
    """Replaces every ReLU, LeakyReLU, PReLU, ReLU6 and Hardtanh of a network by SReLU.

    The network computes the same as before, bit for bit; what it gains are four trainable numbers
    per channel, or for all of a tensor where the channels of a layer cannot be tracked to it, as
    in attention scores. On the input itself, before any layer, channels are in dimension 1 by
    convention, unless it has 3 dimensions. Modules, functions (``F.relu(x)``) and methods
    (``x.relu_()``) are replaced, in place or not, and each call site gets its own unit, even where
    several call one module. All else stays: the tree of modules, their classes (a module whose
    method is rewritten gets a subclass of the same name), hooks, parameters and their names, and
    the differences between training and evaluation. Units that replace functions are named after
    them. The weight of a PReLU module becomes ``a_l`` of its unit, so load weights into it before;
    the one that ``F.prelu`` took stays where it was, unused from now on.

    `torch_srelu.summary` lists what was replaced, what was left unchanged, and why.

    Args:
        model: The network. It is changed in place. Convert it before giving its parameters to an
            optimizer and before wrapping it (DistributedDataParallel, FSDP).
        example: What the network is called with: a tensor, a tuple of positional arguments or a
            dict of keyword arguments. Only its shapes matter, unless the network needs values.
            Without it, an input is made up from the first layer.
        only: Names of modules as in ``named_modules()``, or patterns such as ``"layer[34].*"``:
            convert these and what is inside them, and nothing else.
        skip: Names or patterns of modules to leave unchanged, with what is inside them.

    Returns:
        The same network.

    Raises:
        ValueError: The network has nothing to convert, or cannot be run without an example, or a
            name matches no module. The network is unchanged.

    Warns:
        UserWarning: No activation could be converted; or something out of reach, such as a global
            cache, keeps a tensor of the trial run, which has no values: clear it.

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
    only = ["*"] if only is None else _patterns(only, "only", model)
    skip = _patterns(skip, "skip", model)
    calls, failure = run_on_trial(model, example)
    plan = plan_replacements(model, calls)
    for replacement in plan:
        if not _matches(replacement.path, only) or _matches(replacement.path, skip):
            replacement.problem = "not asked for"
            replacement.requested = False
    keep_modules_whole([replacement for replacement in plan if replacement.requested])
    missed = unreached_calls(model, calls) | _activations_in_kernels(model)
    left = missed | _left(model, plan)
    if failure:
        left[model, "training mode"] = f"the example cannot be used in it: {failure}"
    if not plan and not left and not any(isinstance(m, SReLU) for m in model.modules()):
        raise ValueError(
            f"{type(model).__name__} calls no ReLU, LeakyReLU, PReLU, ReLU6 or Hardtanh: "
            "there is nothing to convert"
        )
    possible = [replacement for replacement in plan if not replacement.problem]
    if not possible and (missed or any(replacement.requested for replacement in plan)):
        warnings.warn(
            f"no activation of {type(model).__name__} could be converted: "
            "print(torch_srelu.summary(model)) says why",
            stacklevel=2,
        )
    _apply(possible)
    note_left(model, left)
    return model


def _check(model: nn.Module) -> None:
    check_is_module(model)
    if isinstance(model, ScriptModule):
        raise ValueError(
            "a scripted model has no source to rewrite: convert the model that was scripted. "
            "A converted one can be exported (torch.export) or traced (torch.jit.trace), "
            "but not scripted"
        )
    if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        raise ValueError(
            f"{type(model).__name__} has registered the parameters already: "
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
    names = [name for name, _ in model.named_modules() if name]
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(
                f"{argument} must be names of modules, got a {type(pattern).__name__}: give them "
                'as strings, such as "layer4" or ["0", "1"]'
            )
        if not any(fnmatchcase(name, pattern) for name in names):
            children = ", ".join(name for name, _ in model.named_children())
            raise ValueError(
                f"{argument}={pattern!r} matches no module of {type(model).__name__}; "
                f"names are as in named_modules(); its children are: {children}"
            )
    return patterns


def _matches(path: str, patterns: list[str]) -> bool:
    """Whether a pattern matches the path or that of a module around it."""
    paths = itertools.accumulate(path.split("."), "{}.{}".format)
    return any(fnmatchcase(name, pattern) for name in paths for pattern in patterns)


def _activations_in_kernels(model: nn.Module) -> dict[tuple[nn.Module, str], str]:
    """The activations that nothing calls, because a kernel has them: {(module, what): why}."""
    return {
        (module, "ReLU"): "it is in torch's kernel of a recurrent layer"
        for module in model.modules()
        if isinstance(module, (nn.RNN, nn.RNNCell)) and module.nonlinearity == "relu"
    }


def _left(model: nn.Module, plan: list[Replacement]) -> dict[tuple[nn.Module, str], str]:
    """What stays, and why: {(the module that the summary lists it under, what it is): why}."""
    left: dict[tuple[nn.Module, str], str] = {}
    for r in plan:
        if r.problem:
            module = r.slot.module if r.slot else r.site.owner if r.site else model
            left[module, r.label] = r.problem
    called = {replacement.slot for replacement in plan}
    for slot in slots_of(model):
        if slot not in called:
            left[slot.module, type(slot.module).__name__] = "the run did not call it"
    for module in model.modules():
        if isinstance(module, ScriptModule):
            left[module, "what is in it"] = "scripted: there is no source to rewrite"
    return left


def _apply(plan: list[Replacement]) -> None:
    """Puts the units in. Everything that could fail comes first."""
    new: dict[tuple[nn.Module, str], nn.Module] = {}  # {(parent, name): unit or list of units}
    edits: dict[nn.Module, dict[str, dict[Position, CallEdit]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for replacement in plan:
        slot, site = replacement.slot, replacement.site
        own_slot = slot if replacement.first else None  # else a slot that another site's unit gets
        parent, name = own_slot[:2] if own_slot else _free_name(replacement, new)
        new[parent, name] = _unit(replacement)
        if replacement.rewritten and site is not None:
            edits[site.owner][site.method][site.end] = CallEdit(
                name, site.is_method, replacement.loop
            )
    classes = {owner: rewritten_class(owner, methods) for owner, methods in edits.items()}
    for (parent, name), unit in new.items():
        setattr(parent, name, unit.train(parent.training))
    for owner, cls in classes.items():
        set_class(owner, cls, edits[owner])


def _unit(replacement: Replacement) -> nn.Module:
    units = [build_unit(calls) for calls in replacement.groups]
    if replacement.slot is not None:
        for i, unit in enumerate(units):
            inherit_hooks(unit, replacement.slot.module, first=replacement.first and i == 0)
    return UnitPerIteration(units) if replacement.loop else units[0]


def _free_name(
    replacement: Replacement, taken: Container[tuple[nn.Module, str]]
) -> tuple[nn.Module, str]:
    """A name for the unit in the module whose method calls it: relu, relu_2, relu_3, ..."""
    assert replacement.site is not None, "a call that is rewritten has a site"
    owner, name = replacement.site.owner, replacement.calls[0].activation.function
    if replacement.slot is not None and replacement.slot.name.isidentifier():
        name = replacement.slot.name
    names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2)))
    return next((owner, n) for n in names if not _has(owner, n) and (owner, n) not in taken)


def _has(module: nn.Module, name: str) -> bool:
    """Whether the module has an attribute of this name.

    If its ``__getattr__`` has a value for every name, only those in ``dir(module)`` count.
    """
    if hasattr(module, "_srelu_no_such_name"):
        return name in dir(module)
    return hasattr(module, name)
