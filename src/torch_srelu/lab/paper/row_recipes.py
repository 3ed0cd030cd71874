"""The run of every row of the tables, and of questions of our own: read from rows.toml.

A row ``nin+...`` is the protocol `faithful` with an activation. A whole system is trained as its
authors did (`lab.config.rival_recipes`), with what all rows of the reproduction share: averaged
weights as a second result, bfloat16, bit-equal repetition. On CIFAR most systems are cut to
60 epochs, with their schedule: such a run is called short and says nothing about the paper's value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..config.recipes import CONDITIONS, FAITHFUL, faithful, recipe
from ..config.rival_recipes import RECIPES, SHORT, rival
from ..config.run import Run
from ..util.package_files import read_toml
from .published import PACKAGE

SLOPES = (0.01, 0.1, 0.2, 0.33)  # of LReLU, among which the validation data choose
REUSED_SLOPE = 0.2  # that of a frozen SReLU
REUSED_EPOCHS = 20
LONGER = 1.1  # the epochs of the control of compute, by those of SReLU


# The run of a row for a condition, a seed, a length if not the default, and fields of the run.
RowRecipe = Callable[..., Run]


def _nin(condition: str, seed: int, length: str = "short", **fields: Any) -> Run:
    """NIN with an activation, under the protocol of the reproduction."""
    return faithful(condition, seed=seed, length=length, **fields)


def _apl(condition: str, seed: int, length: str = "short", **decisions: Any) -> Run:
    """APL per channel, with 2 hinges on CIFAR-10 and 1 on CIFAR-100, as the paper counts."""
    hinges = 1 if condition.startswith("cifar100") else 2
    return faithful(condition, "apl", seed, length, options={"hinges": hinges}, **decisions)


def _longer(condition: str, seed: int, length: str = "short", **decisions: Any) -> Run:
    """ReLU for longer than SReLU's training takes: a tenth more epochs.

    A step with SReLU takes 1.06 of one with ReLU where the device is theirs alone, compiled and
    captured (docs/speed.md); runs that share it, as those of the reproduction do, cannot tell.
    """
    epochs = faithful(condition, "relu", seed, length).epochs
    return faithful(condition, "relu", seed, length, epochs=round(LONGER * epochs), **decisions)


def _reused(condition: str, seed: int, length: str = "short", **fields: Any) -> Run:
    """Further epochs of a finished leaky ReLU network, at the learning rate it ended with."""
    first = ROWS["reuse:before"](condition, seed, length)
    further: dict[str, Any] = {
        "start": first.key(),
        "epochs": REUSED_EPOCHS,
        "lr": first.lr * first.gamma ** len(first.milestones),
        "schedule": "constant",
        "milestones": (),
    }
    return faithful(condition, seed=seed, length=length, **further | fields)


_TABLES = read_toml(PACKAGE, "rows.toml")
_LEAKY: dict[str, Any] = {"activation": "lrelu", "options": {"slope": REUSED_SLOPE}}
_SLOPED = {f"lrelu:{s}": {"activation": "lrelu", "options": {"slope": s}} for s in SLOPES}
ROWS: dict[str, RowRecipe] = {
    **{name: partial(_nin, **fields) for name, fields in _TABLES["nin"].items()},
    # Judged on 20 % of the training data, which it did not see.
    **{name: partial(_nin, validation=0.2, **fields) for name, fields in _SLOPED.items()},
    "nin+apl": _apl,
    "relu:longer": _longer,
    "reuse:before": partial(_nin, **_LEAKY),
    "reuse:lrelu": partial(_reused, **_LEAKY),
    "reuse:srelu": partial(_reused, activation="srelu", freeze=0),  # adapted before its first step
}


def _system(
    condition: str,
    seed: int,
    length: str = "own",
    *,
    system: str,
    cut: tuple[str, ...] = (),
    **fields: Any,
) -> Run:
    """A system as published, but of 60 epochs under the conditions where it is cut."""
    shared: dict[str, Any] = {**CONDITIONS[condition], **FAITHFUL}
    if condition in cut:
        shared["epochs"] = SHORT
    return rival(system, seed=seed, **shared | fields)


def _authors_nin(condition: str, seed: int, length: str = "own", **decisions: Any) -> Run:
    """NIN as its authors trained it: max pooling, 200, 30 and 30 epochs.

    Rates, decay and initial weights are those of NIN + ReLU here: on CIFAR-10 those of Caffe's
    model zoo, on CIFAR-100 the authors', but for the weights, which were dead (block ``start``).
    """
    own = {**CONDITIONS[condition], **FAITHFUL}
    own |= {"net": f"nin-max-{own['dataset']}", "epochs": 260, "milestones": (200 / 260, 230 / 260)}
    return recipe(activation="relu", seed=seed, **own | decisions)


SYSTEMS: dict[str, RowRecipe] = {
    **{name: partial(_system, **fields) for name, fields in _TABLES["systems"].items()},
    "nin": _authors_nin,  # Lin et al., 2013
}
LINEAR = ("linear", "linear-gcn")

# How long each system's own training is, by the name of its network.
_WHOLE = {of["net"]: of["epochs"] for own in RECIPES.values() for of in own.values()}


def whole_length(run: Run) -> int:
    """How many epochs the run's system takes as published; the run's own if it is none of these.

    Example:
        >>> run = SYSTEMS["maxout"]("cifar10", seed=1)
        >>> run.epochs, whole_length(run)
        (60, 500)
    """
    return _WHOLE.get(run.net, run.epochs)


def is_short(run: Run) -> bool:
    """Whether the run is cut: its error is that of no published training."""
    return run.epochs < whole_length(run)
