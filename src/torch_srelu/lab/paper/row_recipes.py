"""The run of every row: of the paper's tables, of rows beside them, and of questions of our own.

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
from .published import CIFAR, FLIPS10, FLIPS100

SLOPES = (0.01, 0.1, 0.2, 0.33)  # of LReLU, among which the validation data choose
REUSED_SLOPE = 0.2  # that of a frozen SReLU
REUSED_EPOCHS = 20
LONGER = 1.1  # the epochs of the control of compute, by those of SReLU


# The run of a row for a condition, a seed, a length if not the default, and fields of the run.
RowRecipe = Callable[..., Run]


def _nin(activation: str, condition: str, seed: int, length: str = "short", **fields: Any) -> Run:
    """NIN with an activation, under the protocol of the reproduction."""
    return faithful(condition, activation, seed, length, **fields)


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


def _reused(
    activation: str, condition: str, seed: int, length: str = "short", **fields: Any
) -> Run:
    """Further epochs of a finished leaky ReLU network, at the learning rate it ended with."""
    first = ROWS["reuse:before"](condition, seed, length)
    further: dict[str, Any] = {
        "start": first.key(),
        "epochs": REUSED_EPOCHS,
        "lr": first.lr * first.gamma ** len(first.milestones),
        "schedule": "constant",
        "milestones": (),
    }
    return faithful(condition, activation, seed, length, **further | fields)


_REUSED_OPTIONS = {"slope": REUSED_SLOPE}
ROWS: dict[str, RowRecipe] = {
    "nin+relu": partial(_nin, "relu"),
    "nin+lrelu": partial(_nin, "lrelu", options={"slope": SLOPES[0]}),  # or the one that is chosen
    "nin+prelu": partial(_nin, "prelu"),
    "nin+apl": _apl,
    "nin+apl-neuron": partial(
        _nin, "apl", options={"hinges": 2, "per": "neuron"}
    ),  # as its authors
    "nin+srelu-manual": partial(
        _nin, "srelu-manual"
    ),  # t_r = 1 is ours: the paper's values are unknown
    "nin+srelu-shared": partial(_nin, "srelu-shared"),
    "nin+srelu": partial(_nin, "srelu"),
    "srelu:left": partial(_nin, "srelu", fixed=("t_r", "a_r")),
    "srelu:right": partial(_nin, "srelu", fixed=("t_l", "a_l")),
    "srelu:slopes": partial(_nin, "srelu", fixed=("t_r", "t_l")),
    "srelu:thresholds": partial(_nin, "srelu", fixed=("a_r", "a_l")),
    "srelu:freeze25": partial(_nin, "srelu", freeze=25),
    "srelu:quantile80": partial(_nin, "srelu", quantile=0.8),
    "srelu:quantile95": partial(_nin, "srelu", quantile=0.95),
    "srelu:quantile10": partial(_nin, "srelu", quantile=0.1),
    "srelu:slow": partial(_nin, "srelu", lr_scale=0.1),
    "srelu:layer": partial(_nin, "srelu", scope="layer"),
    # At the rate of the weights, shared parameters ran away within five steps of the thaw in a
    # trial: their gradients are sums over all channels.
    "srelu:shared-slow": partial(_nin, "srelu-shared", lr_scale=0.1),
    # Judged on 20 % of the training data, which it did not see.
    **{f"lrelu:{s}": partial(_nin, "lrelu", options={"slope": s}, validation=0.2) for s in SLOPES},
    # From the initial weights and last rates that were published for it.
    "relu:published-start": partial(_nin, "relu", net="nin-published-start-cifar100"),
    # With a last layer that starts as the others do, its biases at 0.
    "relu:zero-biases": partial(_nin, "relu", net="nin-mnist"),
    "relu:longer": _longer,
    "reuse:before": partial(_nin, "lrelu", options=_REUSED_OPTIONS),
    "reuse:lrelu": partial(_reused, "lrelu", options=_REUSED_OPTIONS),
    "reuse:srelu": partial(_reused, "srelu", freeze=0),  # it is adapted before its first step
}


def _system(
    name: str, cut: tuple[str, ...], condition: str, seed: int, length: str = "own", **fields: Any
) -> Run:
    """A system as published, but of 60 epochs under the conditions where it is cut."""
    shared: dict[str, Any] = {**CONDITIONS[condition], **FAITHFUL}
    if condition in cut:
        shared["epochs"] = SHORT
    return rival(name, seed=seed, **shared | fields)


def _authors_nin(condition: str, seed: int, length: str = "own", **decisions: Any) -> Run:
    """NIN as its authors trained it: max pooling, 200, 30 and 30 epochs.

    Rates, decay and initial weights are those of NIN + ReLU here: on CIFAR-10 those of Caffe's
    model zoo, on CIFAR-100 the authors', but for the weights, which were dead (block ``start``).
    """
    own = {**CONDITIONS[condition], **FAITHFUL}
    own |= {"net": f"nin-max-{own['dataset']}", "epochs": 260, "milestones": (200 / 260, 230 / 260)}
    return recipe(activation="relu", seed=seed, **own | decisions)


_FLIPS = (FLIPS10, FLIPS100)
SYSTEMS: dict[str, RowRecipe] = {
    "maxout": partial(_system, "maxout", (*CIFAR, *_FLIPS)),  # Goodfellow et al., 2013
    # Springenberg and Riedmiller, 2013
    "probmaxout": partial(_system, "probout", (*CIFAR, *_FLIPS)),
    # Agostinelli et al., 2014; per neuron
    "apl": partial(_system, "apl-network", (*CIFAR, *_FLIPS)),
    "dsn": partial(_system, "dsn", _FLIPS),  # deeply supervised nets on NIN: Lee et al., 2014
    # Srivastava and Salakhutdinov, 2013: the last layer
    "tree": partial(_system, "tree-prior", CIFAR),
    "nin": _authors_nin,  # Lin et al., 2013
    "stochastic-pooling": partial(_system, "stochastic-pooling", ()),  # Zeiler and Fergus, 2013
    # One dense layer, which every system must beat; on images as DSN gets them: not whitened.
    "linear": partial(_system, "linear", ()),
    "linear-gcn": partial(_system, "linear", (), preprocessing="gcn"),
    # Szegedy et al., 2014, as BVLC has it, on ten classes of ImageNet.
    "googlenet": partial(_system, "googlenet", (), activation="relu"),
    "googlenet+prelu": partial(_system, "googlenet", (), activation="prelu"),
    "googlenet+srelu": partial(_system, "googlenet", (), activation="srelu"),
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
