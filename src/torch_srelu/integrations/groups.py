"""Takes SReLU out of the weight decay of an optimizer that somebody else has built."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ..optim import srelu_parameters


def split(model: nn.Module, optimizer: Optimizer, schedulers: Iterable[Any] = ()) -> None:
    """Gives the SReLU parameters of each decayed group a group of their own, without weight decay.

    To be called before the states of optimizer and schedulers are loaded, as after building them.

    Args:
        model: The network.
        optimizer: Its optimizer.
        schedulers: The learning rate schedulers of the optimizer. What they keep for each group
            they get for the new groups too.
    """
    for i, (group, moved) in enumerate(_take_out(model, optimizer)):
        if moved:
            count = len(optimizer.param_groups)
            optimizer.add_param_group({**group, "params": moved, "weight_decay": 0.0})
            for scheduler in schedulers:
                _extend(scheduler, count, i)


def move(model: nn.Module, optimizer: Optimizer) -> None:
    """Moves the SReLU parameters of decayed groups to the group that has no weight decay.

    Its ``state_dict`` keeps the groups that it was built with: one built in the same way can load
    it, moved or not. An optimizer without such a group stays as it is, and so does one from which
    they were moved before.
    """
    free = next((g for g in optimizer.param_groups if not g.get("weight_decay")), None)
    if free is None:
        return
    built = [list(group["params"]) for group in optimizer.param_groups]
    moved = [p for _, taken in _take_out(model, optimizer) for p in taken]
    if not moved:
        return
    free["params"] = [*free["params"], *moved]
    optimizer.register_state_dict_post_hook(lambda it, state: _as_built(it, state, built))
    optimizer.register_load_state_dict_pre_hook(lambda it, state: _as_moved(it, state, built))


def _take_out(model: nn.Module, optimizer: Optimizer) -> list[tuple[dict[str, Any], list]]:
    """Every group, without its SReLU parameters if they were decayed, and these."""
    ours = set(srelu_parameters(model).values())
    taken = []
    for group in optimizer.param_groups:
        moved = [p for p in group["params"] if p in ours] if group.get("weight_decay") else []
        group["params"] = [p for p in group["params"] if p not in set(moved)]
        taken.append((group, moved))
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
    optimizer: Optimizer, state: dict[str, Any], built: list[list[nn.Parameter]]
) -> dict[str, Any]:
    """A state_dict of the optimizer, with its parameters numbered and grouped as at first."""
    now = [p for group in optimizer.param_groups for p in group["params"]]
    number = {p: i for i, p in enumerate(chain(*built))}
    return {
        **state,
        "state": {number[now[i]]: kept for i, kept in state["state"].items()},
        "param_groups": [
            {**group, "params": [number[p] for p in params]}
            for group, params in zip(state["param_groups"], built, strict=True)
        ],
    }


def _as_moved(
    optimizer: Optimizer, state: dict[str, Any], built: list[list[nn.Parameter]]
) -> dict[str, Any] | None:
    """What `_as_built` made of a state_dict, grouped as the optimizer is now.

    Anything else is left to the optimizer, which knows what to say about it.
    """
    saved = [group["params"] for group in state["param_groups"]]
    if [len(params) for params in saved] != [len(params) for params in built]:
        return None
    number = dict(zip(chain(*built), chain(*saved), strict=True))
    return {
        **state,
        "param_groups": [
            {**group, "params": [number[p] for p in now["params"]]}
            for group, now in zip(state["param_groups"], optimizer.param_groups, strict=True)
        ],
    }
