"""Excludes SReLU from the weight decay of an existing optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, compress
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..optim import srelu_parameters


def add_undecayed_groups(
    model: nn.Module, optimizer: Optimizer, schedulers: Iterable[Any] = ()
) -> None:
    """Gives the SReLU parameters of each decayed group a group of their own, without weight decay.

    To be called before the states of optimizer and schedulers are loaded, as after building them.

    Args:
        model: The network.
        optimizer: Its optimizer.
        schedulers: The learning rate schedulers of the optimizer; their lists of values for each
            group are extended for the new groups.
    """
    for i, (group, moved) in enumerate(_remove_decayed(model, optimizer)):
        if moved["params"]:
            count = len(optimizer.param_groups)
            optimizer.add_param_group({**group, **moved, "weight_decay": 0.0})
            for scheduler in schedulers:
                _extend(scheduler, count, i)


def move_to_undecayed_group(model: nn.Module, optimizer: Optimizer) -> None:
    """Moves the SReLU parameters of decayed groups to the group that has no weight decay.

    The ``state_dict`` of the optimizer keeps its original groups: any optimizer built in the same
    way can load it, moved or not. An optimizer without such a group stays as it is, and so does one
    from which they were moved before.
    """
    free = next((g for g in optimizer.param_groups if not g.get("weight_decay")), None)
    if free is None:
        return
    built = [_lists(group) for group in optimizer.param_groups]
    removed = [moved for _, moved in _remove_decayed(model, optimizer)]
    if not any(moved["params"] for moved in removed):
        return
    for moved in removed:
        free |= {key: [*free[key], *entries] for key, entries in moved.items()}
    optimizer.register_state_dict_post_hook(lambda it, state: _as_built(it, state, built))
    optimizer.register_load_state_dict_pre_hook(lambda it, state: _as_moved(it, state, built))


def _lists(group: dict[str, Any]) -> dict[str, list]:
    """The lists of a group with an entry for each parameter: these, and their names if any."""
    return {key: list(group[key]) for key in ("params", "param_names") if key in group}


def _remove_decayed(model: nn.Module, optimizer: Optimizer) -> list[tuple[dict[str, Any], dict]]:
    """Removes decayed SReLU parameters; each group with its `_lists` of the removed ones."""
    srelu = set(srelu_parameters(model).values())
    removed = []
    for group in optimizer.param_groups:
        lists = _lists(group)
        moves = [bool(group.get("weight_decay")) and p in srelu for p in lists["params"]]
        stays = [not move for move in moves]
        group |= {key: list(compress(entries, stays)) for key, entries in lists.items()}
        removed.append((group, {key: list(compress(e, moves)) for key, e in lists.items()}))
    return removed


# Lists of torch's schedulers with one entry for each group.
_PER_GROUP = ["base_lrs", "lr_lambdas", "min_lrs", "max_lrs", "base_momentums", "max_momentums"]


def _extend(scheduler: Any, count: int, source: int) -> None:
    """Repeats the entry of group ``source`` in every list that has one for each of the groups."""
    attributes = getattr(scheduler, "__dict__", {})
    sequences = [value for value in attributes.values() if isinstance(value, (list, tuple))]
    for inner in chain.from_iterable(sequences):
        if isinstance(inner, LRScheduler):  # of a SequentialLR or ChainedScheduler
            _extend(inner, count, source)
    last = getattr(scheduler, "get_last_lr", list)()
    for entries in (last, *(attributes.get(name) for name in _PER_GROUP)):
        if isinstance(entries, list) and len(entries) == count:
            entries.append(entries[source])


def _as_built(
    optimizer: Optimizer, state: dict[str, Any], built: list[dict[str, list]]
) -> dict[str, Any]:
    """A state_dict of the optimizer with its original groups, and parameters numbered by those."""
    now = [p for group in optimizer.param_groups for p in group["params"]]
    number = {p: i for i, p in enumerate(_all(built))}
    return {
        **state,
        "state": {number[now[i]]: value for i, value in state["state"].items()},
        "param_groups": [
            {**group, **first, "params": [number[p] for p in first["params"]]}
            for group, first in zip(state["param_groups"], built, strict=True)
        ],
    }


def _as_moved(
    optimizer: Optimizer, state: dict[str, Any], built: list[dict[str, list]]
) -> dict[str, Any] | None:
    """The inverse of `_as_built`: the groups that the optimizer has now.

    None for a state_dict of other groups, which the optimizer itself refuses.
    """
    saved = state["param_groups"]
    if [len(group["params"]) for group in saved] != [len(first["params"]) for first in built]:
        return None
    number = dict(zip(_all(built), _all(saved), strict=True))
    return {
        **state,
        "param_groups": [
            {**group, **_lists(now), "params": [number[p] for p in now["params"]]}
            for group, now in zip(saved, optimizer.param_groups, strict=True)
        ],
    }


def _all(groups: Iterable[dict[str, Any]]) -> Iterator[Any]:
    return chain.from_iterable(group["params"] for group in groups)
