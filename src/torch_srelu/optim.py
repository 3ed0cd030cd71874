"""Parameter groups of optimizers: SReLU in groups of its own, without weight decay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ._text import counted
from .module import SReLU, check_is_module

_BUILD_IT = "build it from torch_srelu.param_groups(model, lr=..., weight_decay=...)"


def srelu_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of every SReLU in ``model`` by name, those that units share only once."""
    units = (module for module in model.modules() if isinstance(module, SReLU))
    own = {p for unit in units for p in unit.parameters()}  # also what a parametrization reads
    return {name: p for name, p in model.named_parameters() if p in own}


def param_groups(
    model: nn.Module,
    *,
    lr: float | Tensor,
    weight_decay: float = 0.0,
    lr_scale: float = 1.0,
    groups: Iterable[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Parameter groups for a torch optimizer, with those of SReLU apart and without weight decay.

    Weight decay would pull thresholds and slopes to zero, that is SReLU towards another function;
    the paper decays none of the four. Every parameter of ``model`` is in exactly one group.

    Args:
        model: Any network; one without SReLU gets its groups all the same.
        lr: Learning rate, and for SReLU this times ``lr_scale``.
        weight_decay: Weight decay of everything but SReLU.
        lr_scale: Factor on the learning rate of SReLU.
        groups: Your own groups, as you would give them to the optimizer. Each keeps its options,
            ``lr`` and ``weight_decay`` where it does not say otherwise; the SReLU parameters in
            it move to a group of their own with the same options, but without weight decay and
            with the scaled learning rate. Parameters in none of your groups are added.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> import torch_srelu as ts
        >>> net = nn.Sequential(nn.Linear(8, 16), ts.SReLU(16), nn.Linear(16, 2))
        >>> groups = ts.param_groups(net, lr=0.1, weight_decay=1e-4, lr_scale=0.5)
        >>> [(len(g["params"]), g["lr"], g["weight_decay"]) for g in groups]
        [(4, 0.1, 0.0001), (4, 0.05, 0.0)]
        >>> optimizer = torch.optim.SGD(groups, momentum=0.9)
    """
    check_is_module(model, ": pass the network itself")
    _check_number("lr_scale", lr_scale)
    srelu_set = set(srelu_parameters(model).values())
    groups = list(groups)
    if other := [type(group).__name__ for group in groups if not isinstance(group, Mapping)]:
        raise TypeError(
            'groups must be dicts such as {"params": ..., "lr": ...}, '
            f"got a {other[0]} among them"
        )
    given = [{**group, "params": _as_list(group.get("params"))} for group in groups]
    named = [p for group in given for p in group["params"]]
    placed = set(named)
    if len(placed) != len(named):
        raise ValueError(
            f"groups name {counted(len(named) - len(placed), 'parameter')} more than once: "
            "give each parameter to one group"
        )
    others = {"params": [p for p in model.parameters() if p not in placed]}
    plain, srelu = [], []
    for group in (*given, others):
        options = {"lr": lr, "weight_decay": weight_decay, **group}
        _check_number("lr", options["lr"])
        _check_number("weight_decay", options["weight_decay"])
        scaled = {**options, "lr": options["lr"] * lr_scale, "weight_decay": 0.0}
        plain.append({**options, "params": [p for p in group["params"] if p not in srelu_set]})
        srelu.append({**scaled, "params": [p for p in group["params"] if p in srelu_set]})
    return [group for group in (*plain, *srelu) if group["params"]]


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, (Real, Tensor)):
        raise TypeError(
            f"{name} must be a number, or a tensor of one, got {type(value).__name__}: pass a float"
        )
    if not float(value) >= 0:  # torch checks its own arguments, not those of groups
        raise ValueError(f"{name} must be at least 0, got {value}")


def _as_list(params: Tensor | Iterable[Tensor] | None) -> list[Tensor]:
    if params is None:
        raise ValueError('every group must have "params", as a torch optimizer wants it')
    params = [params] if isinstance(params, Tensor) else list(params)
    if other := [type(p).__name__ for p in params if not isinstance(p, Tensor)]:
        raise TypeError(f'"params" of a group must be parameters, got a {other[0]} among them')
    return params


def check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    """Raises an error unless ``optimizer`` holds the SReLU parameters and does not decay them."""
    if not _is_optimizer(optimizer):
        raise TypeError(
            f"the optimizer is a {type(optimizer).__name__}, expected the torch optimizer that "
            f"trains the model: {_BUILD_IT}"
        )
    group_of = {p: group for group in optimizer.param_groups for p in group["params"]}
    srelu = {name: p for name, p in srelu_parameters(model).items() if p.requires_grad}
    groups = {name: group_of[p] for name, p in srelu.items() if p in group_of}
    missing = [name for name in srelu if name not in groups]
    decayed = [name for name, group in groups.items() if group.get("weight_decay")]
    shrunk = [name for name, group in groups.items() if group.get("lambd")]  # by ASGD
    for names, problem, remedy in (
        (missing, "does not hold", _BUILD_IT),
        (decayed, "would decay", _BUILD_IT),
        (shrunk, "would shrink, by lambd,", "give the group of SReLU lambd=0"),
    ):
        if names:
            count = counted(len(names), "SReLU parameter")
            raise ValueError(f"the optimizer {problem} {count}, {names[0]} the first: {remedy}")


def _is_optimizer(it: Any) -> bool:
    """Whether it has the attributes of one; wrappers need not inherit from `Optimizer`."""
    return hasattr(it, "param_groups") and hasattr(it, "state")


def clear_state(optimizer: Any, parameters: Collection[nn.Parameter]) -> None:
    """Clears the state of parameters in an optimizer, and in the optimizers that it wraps.

    ZeroRedundancyOptimizer and timm's Lookahead keep all state in the optimizer that they wrap.
    """
    found = [optimizer]
    for one in found:  # which grows
        for parameter in parameters:
            one.state.pop(parameter, None)
        inside = (value for value in getattr(one, "__dict__", {}).values() if _is_optimizer(value))
        found += [value for value in inside if all(value is not known for known in found)]
