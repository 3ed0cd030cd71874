"""Takes SReLU out of the weight decay of an optimizer that somebody else has built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, compress
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ..optim import srelu_parameters


def add_undecayed_groups(
    model: nn.Module, optimizer: Optimizer, schedulers: Iterable[Any] = ()
) -> None:
    """Gives the SReLU parameters of each decayed group a group of their own, without weight decay.

    To be called before the states of optimizer and schedulers are loaded, as after building them.

    Args:
        model: The network.
        optimizer: Its optimizer.
        schedulers: The learning rate schedulers of the optimizer. What they keep for each group
            they get for the new groups too.
    """
    for i, (group, moved) in enumerate(_take_out(model, optimizer)):
        if moved["params"]:
            count = len(optimizer.param_groups)
            optimizer.add_param_group({**group, **moved, "weight_decay": 0.0})
            for scheduler in schedulers:
                _extend(scheduler, count, i)


def move_to_undecayed_group(model: nn.Module, optimizer: Optimizer) -> None:
    """Moves the SReLU parameters of decayed groups to the group that has no weight decay.

    Its own ``state_dict`` keeps the groups that it was built with: one built in the same way can
    load it, moved or not. An optimizer without such a group stays as it is, and so does one from
    which they were moved before.
    """
    free = next((g for g in optimizer.param_groups if not g.get("weight_decay")), None)
    if free is None:
        return
    built = [_lists(group) for group in optimizer.param_groups]
    taken = [moved for _, moved in _take_out(model, optimizer)]
    if not any(moved["params"] for moved in taken):
        return
    for moved in taken:
        free |= {key: [*free[key], *entries] for key, entries in moved.items()}
    optimizer.register_state_dict_post_hook(lambda it, state: _as_built(it, state, built))
    optimizer.register_load_state_dict_pre_hook(lambda it, state: _as_moved(it, state, built))


def _lists(group: dict[str, Any]) -> dict[str, list]:
    """What a group has for each of its parameters: these, and their names if it knows them."""
    return {key: list(group[key]) for key in ("params", "param_names") if key in group}


def _take_out(model: nn.Module, optimizer: Optimizer) -> list[tuple[dict[str, Any], dict]]:
    """Every group, without its SReLU parameters if they were decayed, and the lists of these."""
    ours = set(srelu_parameters(model).values())
    taken = []
    for group in optimizer.param_groups:
        lists = _lists(group)
        goes = [bool(group.get("weight_decay")) and p in ours for p in lists["params"]]
        stays = [not go for go in goes]
        group |= {key: list(compress(entries, stays)) for key, entries in lists.items()}
        taken.append((group, {key: list(compress(e, goes)) for key, e in lists.items()}))
    return taken


# Where the schedulers of torch keep a list with one entry for each group.
_PER_GROUP = (
    "base_lrs", "_last_lr", "lr_lambdas", "min_lrs", "max_lrs", "base_momentums", "max_momentums",
)  # fmt: skip


def _extend(scheduler: Any, count: int, source: int) -> None:
    """Repeats the entry of group ``source`` in every list that has one for each of the groups."""
    for inner in getattr(scheduler, "_schedulers", ()):  # a scheduler made of schedulers
        _extend(inner, count, source)
    for name in _PER_GROUP:
        entries = getattr(scheduler, name, ())
        if isinstance(entries, list) and len(entries) == count:
            entries.append(entries[source])


def _as_built(
    optimizer: Optimizer, state: dict[str, Any], built: list[dict[str, list]]
) -> dict[str, Any]:
    """A state_dict of the optimizer, with its parameters numbered and grouped as at first."""
    now = [p for group in optimizer.param_groups for p in group["params"]]
    number = {p: i for i, p in enumerate(_all(built))}
    return {
        **state,
        "state": {number[now[i]]: kept for i, kept in state["state"].items()},
        "param_groups": [
            {**group, **first, "params": [number[p] for p in first["params"]]}
            for group, first in zip(state["param_groups"], built, strict=True)
        ],
    }


def _as_moved(
    optimizer: Optimizer, state: dict[str, Any], built: list[dict[str, list]]
) -> dict[str, Any] | None:
    """What `_as_built` made of a state_dict, grouped as the optimizer is now.

    Anything else is left to the optimizer, which knows what to say about it.
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
