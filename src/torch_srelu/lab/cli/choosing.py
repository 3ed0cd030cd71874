"""From what the user typed to runs: activations with options, fields of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from ..activations import activation
from ..choices import check_choice
from ..recipes import recipe
from ..run import Run

SRELU_FIELDS = ("quantile", "scope", "lr_scale", "fixed")  # they mean nothing to other activations


def chosen_runs(
    activations: Iterable[str], seeds: Iterable[int], dataset: str, decisions: dict[str, Any]
) -> list[tuple[str, Run]]:
    """The runs of a comparison, named by rival: all rivals of a seed before the next seed.

    Args:
        activations: As typed: ``srelu``, ``lrelu:slope=0.1``.
        seeds: The seeds.
        dataset: Name of the data set.
        decisions: Fields of `Run` that differ from the data set's recipe.
    """
    rivals = [(spec, *rival(spec)) for spec in dict.fromkeys(activations)]
    return [
        (spec, recipe(dataset, name, seed, options=options, **_meant_for(name, decisions)))
        for seed in seeds
        for spec, name, options in rivals
    ]


def _meant_for(name: str, decisions: dict[str, Any]) -> dict[str, Any]:
    """Without what only SReLU has: it would make a ReLU run that was done a different run."""
    idle = () if name.startswith("srelu") else SRELU_FIELDS
    if not activation(name).adapts:
        idle = (*idle, "freeze")
    return {field: value for field, value in decisions.items() if field not in idle}


def rival(spec: str) -> tuple[str, dict[str, Any]]:
    """The name and options of an activation as it is typed.

    Example:
        >>> rival("lrelu:slope=0.1")
        ('lrelu', {'slope': 0.1})
    """
    name, _, rest = spec.partition(":")
    known = activation(name)
    options = {key: _literal(value) for key, value in map(_pair, filter(None, rest.split(",")))}
    known.check(options)
    return name, options


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """``NAME=VALUE`` for fields of `Run`.

    Example:
        >>> parse_settings(["lr=0.05", "schedule=multistep", "milestones=[0.5, 0.75]"])
        {'lr': 0.05, 'schedule': 'multistep', 'milestones': [0.5, 0.75]}
    """
    names = [field.name for field in fields(Run)]
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
