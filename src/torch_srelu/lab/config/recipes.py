"""Recipes: the decisions that make a run, for each data set, in one place."""

from __future__ import annotations

from typing import Any

from ..data.datasets import dataset as known
from ..models.activation_registry import activation as registered
from ..util.choices import check_choice
from .run import Run

FREEZE_SHARE = 0.05  # of the training, for which adaptive activations stay frozen

_NIN: dict[str, Any] = {"batch": 128, "schedule": "multistep", "epochs": 100}

# Optimizer and schedule for MNIST are not published; these are ours.
_MNIST = _NIN | {
    "net": "nin-lifted-mnist",
    "lr": 0.02,
    "weight_decay": 1e-4,
    "milestones": (5 / 6,),
}

_DECISIONS: dict[str, dict[str, Any]] = {
    "digits": {
        "net": "nin-digits",
        "epochs": 20,
        "batch": 32,
        "lr": 0.05,
        "schedule": "cosine",
        "weight_decay": 5e-4,
    },
    "mnist": _MNIST,
    "fashion-mnist": _MNIST,
    "cifar10": _NIN
    | {
        "net": "nin-cifar10",
        "lr": 0.1,
        "weight_decay": 1e-4,
        "milestones": (5 / 6,),  # 100,000 of 120,000 iterations
        "preprocessing": "gcn+zca",
    },
    "cifar100": _NIN
    | {
        "net": "nin-cifar100",
        "lr": 0.02,
        "weight_decay": 5e-4,
        "milestones": (200 / 260, 230 / 260),  # 200, 30 and 30 epochs
        "preprocessing": "gcn+zca",
    },
}

# The conditions of the paper's tables: data set and augmentation.
CONDITIONS: dict[str, dict[str, Any]] = {
    "cifar10": {"dataset": "cifar10"},
    "cifar100": {"dataset": "cifar100"},
    "cifar10+flips": {"dataset": "cifar10", "augmentation": "flips"},
    "cifar100+flips": {"dataset": "cifar100", "augmentation": "flips"},
    "mnist": {"dataset": "mnist"},
    "imagenet": {"dataset": "imagenette"},  # ten of its classes: all 1,000 are beyond one device
    # Ours, not the paper's: the whole protocol in seconds, on real digits.
    "digits": {"dataset": "digits"},
}

# Epochs by length. Published are 120,000 iterations of 128 images: an epoch of CIFAR is 390 whole
# batches, so 308 epochs, which are 120,120 iterations. MNIST has no published length; 50 are ours.
LENGTHS: dict[str, dict[str, int]] = {
    "short": {"cifar10": 100, "cifar100": 100, "mnist": 50, "digits": 4},
    "published": {"cifar10": 308, "cifar100": 308},
}

# What every row of the reproduction shares. The average of the weights is a second result of each
# run, never a choice. Deterministic, so that a run that was stopped ends with the same bits.
FAITHFUL: dict[str, Any] = {"ema": 0.9995, "precision": "bf16", "deterministic": True}


def recipe(dataset: str, activation: str, seed: int, **decisions: Any) -> Run:
    """The run that is trained when nothing else is asked for.

    Adaptive activations stay frozen for 5 % of the training, at least one epoch if there are two.

    Args:
        dataset: Name of the data set.
        activation: Name of the activation.
        seed: The seed.
        decisions: Fields of `Run` that are to be different.

    Example:
        >>> recipe("cifar10", "srelu", seed=1).freeze
        5
        >>> recipe("digits", "relu", seed=1, epochs=2).net
        'nin-digits'
    """
    known(dataset)
    check_choice("data set with a recipe of its own", dataset, _DECISIONS)
    fields = _DECISIONS[dataset] | {"activation": activation} | decisions
    return Run(dataset=dataset, seed=seed, **with_freeze(fields))


def with_freeze(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a run; an adaptive activation is frozen at first, if they do not say how long."""
    if not registered(fields["activation"]).adapts or "freeze" in fields:
        return fields
    epochs = fields["epochs"]
    return fields | {"freeze": min(max(1, round(FREEZE_SHARE * epochs)), epochs - 1)}


def faithful(
    condition: str, activation: str, seed: int, length: str = "short", **decisions: Any
) -> Run:
    """The protocol of the reproduction: everything as published for the data set, one length.

    Networks, preprocessing, initialisation and optimizer of each data set; SReLU with a_l = 0.2,
    the 90th percentile, frozen for 5 % of the training, at the learning rate of the weights. The
    learning rate falls at the published shares of the length. The result is the error of the last
    epoch's weights on the test data, which are opened once, by a single model in a single view.

    Args:
        condition: One of `CONDITIONS`.
        activation: Name of the activation.
        seed: The seed.
        length: One of `LENGTHS`.
        decisions: Fields of `Run` that are to be different, as in an ablation.

    Example:
        >>> run = faithful("cifar10+flips", "srelu", seed=1, length="published")
        >>> run.epochs, run.freeze, run.augmentation, run.ema
        (308, 15, 'flips', 0.9995)
    """
    check_choice("condition", condition, CONDITIONS)
    check_choice("length", length, LENGTHS)
    own = CONDITIONS[condition]
    check_choice(f"data set of length {length}", own["dataset"], LENGTHS[length])
    epochs = LENGTHS[length][own["dataset"]]
    fields: dict[str, Any] = {**own, **FAITHFUL, "epochs": epochs, **decisions}
    return recipe(activation=activation, seed=seed, **fields)
