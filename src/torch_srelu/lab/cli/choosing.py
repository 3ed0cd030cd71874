"""From what the user typed to runs: activations with options, fields of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from ..activations import activation
from ..choices import check_choice
from ..recipes import recipe
from ..run import Run

SRELU_FIELDS = ("freeze", "quantile", "scope", "lr_scale", "fixed")  # of `Run`, for SReLU alone
OWN_OPTIONS = ("dataset", "activation", "options", "seed", "world")  # chosen by other means


def chosen_runs(
    activations: Sequence[str], seeds: Iterable[int], dataset: str, decisions: dict[str, Any]
) -> list[Run]:
    """The runs of a comparison: all rivals of a seed, in the order given, before the next seed.

    Args:
        activations: As typed: ``srelu``, ``lrelu:slope=0.1``, ``srelu:quantile=0.8``.
        seeds: The seeds.
        dataset: Name of the data set.
        decisions: Fields of `Run` that differ from the data set's recipe.
    """
    rivals = [rival(typed) for typed in activations]
    runs = [
        recipe(dataset, name, seed, **_meant_for(name, decisions) | own)
        for seed in seeds
        for name, own in rivals
    ]
    if len({run.key() for run in runs}) < len(runs):
        raise ValueError(f"a rival is named twice in {' '.join(activations)}: name it once")
    return runs


def rival(typed: str) -> tuple[str, dict[str, Any]]:
    """The activation that was typed, and what follows the colon as fields of `Run`.

    Example:
        >>> rival("lrelu:slope=0.1")
        ('lrelu', {'options': {'slope': 0.1}})
        >>> rival("srelu:quantile=0.8,a_l=0.1")
        ('srelu', {'options': {'a_l': 0.1}, 'quantile': 0.8})
    """
    name, _, rest = typed.partition(":")
    known = activation(name)
    own: dict[str, Any] = {"options": {}}
    for key, text in map(_pair, filter(None, rest.split(","))):
        if key in SRELU_FIELDS and _is_srelu(name):
            own[key] = _literal(text)
        else:
            own["options"][key] = _literal(text)
    known.check(own["options"])
    return name, own


def _is_srelu(name: str) -> bool:
    return name.startswith("srelu")


def _meant_for(name: str, decisions: dict[str, Any]) -> dict[str, Any]:
    """Without what only SReLU has: it would make a ReLU run that was done a different run."""
    idle = () if _is_srelu(name) else SRELU_FIELDS
    if not activation(name).adapts:
        idle = (*idle, "freeze")
    return {field: value for field, value in decisions.items() if field not in idle}


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """``NAME=VALUE`` for fields of `Run`.

    Example:
        >>> parse_settings(["lr=0.05", "schedule=multistep", "milestones=[0.5, 0.75]"])
        {'lr': 0.05, 'schedule': 'multistep', 'milestones': [0.5, 0.75]}
    """
    names = [field.name for field in fields(Run) if field.name not in OWN_OPTIONS]
    settings = {}
    for name, value in map(_pair, pairs):
        check_choice("field of a run", name, names)
        settings[name] = _literal(value)
    return settings


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def _literal(text: str) -> Any:
    """A number, true, false or a list as JSON writes it; anything else is a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text
