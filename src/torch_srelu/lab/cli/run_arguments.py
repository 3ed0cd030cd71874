"""Parses activations with options and fields of a run, and makes runs of them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from ..config.recipes import recipe
from ..config.run import ADAPTIVE_FIELDS, SRELU_FIELDS, Run
from ..models.activation_registry import ACTIVATIONS, activation
from ..training.run_checks import checked
from ..util.choices import check_choice

CHOSEN_OTHERWISE = {  # fields of `Run`, and how
    "dataset": "with --dataset",
    "activation": "by its name alone, as in `srelu train relu`",
    "options": "after the activation and a colon, as in lrelu:slope=0.1",
    "seed": "with --seed, in a comparison with --seeds",
    "world": "with torchrun --nproc-per-node",
}
SETTINGS = tuple(field.name for field in fields(Run) if field.name not in CHOSEN_OTHERWISE)
_LISTS = tuple(field.name for field in fields(Run) if str(field.type).startswith("tuple"))


def chosen_runs(
    activations: Sequence[str], seeds: Iterable[int], dataset: str, decisions: dict[str, Any]
) -> list[Run]:
    """The runs of a comparison: all rivals of a seed, in the order given, before the next seed.

    A field is set for the rivals that use it; there must be one.

    Args:
        activations: As typed: ``srelu``, ``lrelu:slope=0.1``, ``srelu:quantile=0.8``.
        seeds: The seeds.
        dataset: Name of the dataset.
        decisions: Fields of `Run` that differ from the dataset's recipe.
    """
    rivals = [rival(typed) for typed in activations]
    names = dict.fromkeys(name for name, _ in rivals)
    for field in decisions:
        if not any(_uses(name, field) for name in names):
            having = ", ".join(name for name in ACTIVATIONS if _uses(name, field))
            raise ValueError(
                f"{field} means nothing to {' and '.join(names)}, only to {having}: leave it out"
            )
    runs = []
    for seed, (name, own) in itertools.product(seeds, rivals):
        # A field that the activation does not use would change the run's key.
        used = {field: value for field, value in decisions.items() if _uses(name, field)}
        runs.append(checked(recipe(dataset, name, seed, **used | own)))
    if len({run.key() for run in runs}) < len(runs):
        raise ValueError(f"a rival is named twice in {' '.join(activations)}: name it once")
    return runs


def rival(typed: str) -> tuple[str, dict[str, Any]]:
    """Parses an activation and its options into its name and fields of `Run`.

    Example:
        >>> rival("lrelu:slope=0.1")
        ('lrelu', {'options': {'slope': 0.1}})
        >>> rival("srelu:fixed=t_r,a_r,a_l=0.1")
        ('srelu', {'options': {'a_l': 0.1}, 'fixed': ['t_r', 'a_r']})
    """
    name, _, rest = typed.partition(":")
    known, own_fields = activation(name), _own_fields(name)
    own: dict[str, Any] = {"options": {}}
    for key, value in _values(filter(None, re.split(r",\s*(?=\w+=)", rest.rstrip(", ")))).items():
        if own_fields:
            check_choice(f"option of {name}", key, [*known.options, *own_fields])
        (own if key in own_fields else own["options"])[key] = value
    known.check(own["options"])
    return name, own


def rivals_in_words() -> str:
    """Every activation, each with its options."""
    choices = {name: [*a.options, *_own_fields(name)] for name, a in ACTIVATIONS.items()}
    return ", ".join(f"{name} ({', '.join(own)})" if own else name for name, own in choices.items())


def _own_fields(name: str) -> tuple[str, ...]:
    """The fields of `Run` that only some activations use, of those that this one uses."""
    known = activation(name)
    return (ADAPTIVE_FIELDS if known.adapts else ()) + (SRELU_FIELDS if known.is_srelu else ())


def _uses(name: str, field: str) -> bool:
    """Whether a field of `Run` means something to this activation."""
    return field in _own_fields(name) or field not in (*ADAPTIVE_FIELDS, *SRELU_FIELDS)


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Parses ``NAME=VALUE`` for fields of `Run`.

    Example:
        >>> parse_settings(["lr=0.05", "schedule=multistep", "milestones=0.5,0.75"])
        {'lr': 0.05, 'schedule': 'multistep', 'milestones': [0.5, 0.75]}
    """
    settings = _values(pairs)
    for name in settings:
        if name in CHOSEN_OTHERWISE:
            raise ValueError(f"{name} is not chosen with --set but {CHOSEN_OTHERWISE[name]}")
        check_choice("field of a run", name, SETTINGS)
    return settings


def _values(pairs: Iterable[str]) -> dict[str, Any]:
    """Parses ``NAME=VALUE``, each name once."""
    values = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ValueError(f"expected NAME=VALUE, got {text!r}")
        if name in values:
            raise ValueError(f"{name} is given twice: give it once")
        if name in _LISTS:
            values[name] = _items(name, value)
        elif "," in value and not value.startswith(("[", "{", '"')):
            raise ValueError(f"expected NAME=VALUE, got {value.partition(',')[2].strip()!r}")
        else:
            values[name] = _literal(value)
    return values


def _items(name: str, text: str) -> list[Any]:
    """Parses a list: JSON, or without quotes, or without brackets."""
    found = _literal(text)
    if isinstance(found, list):
        return found
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if set("[]()") & set(inner):
        raise ValueError(f"{name} must be a list such as a,b or [a, b], got {text!r}")
    return [_literal(item.strip()) for item in inner.split(",") if item.strip()]


def _literal(text: str) -> Any:
    """Parses JSON; anything else is a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text
