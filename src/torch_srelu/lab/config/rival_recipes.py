"""Recipes: how each of the paper's other systems is trained, on each of its data sets.

Published values are those of the systems' own papers and files. Ours are: a constant momentum where
theirs rises; rates that fall linearly to 0 where theirs end at 1 %; for DSN one factor for both
falls of the rate, so that it ends at 6e-5 and not at 1e-4; everything about tree-based priors but
the prior; optimizer and length on MNIST.
"""

from __future__ import annotations

from typing import Any

from ..util.choices import check_choice
from .recipes import with_freeze
from .run import Run

SHORT = 60  # epochs; printed as short and never ranked against the paper

_LINEAR: dict[str, Any] = {"schedule": "poly", "power": 1.0}
_WHITE: dict[str, Any] = {"preprocessing": "gcn+zca"}
_MAXOUT: dict[str, Any] = {"batch": 128, "lr": 0.17, "momentum": 0.6, "epochs": 500, **_LINEAR}
_MAXOUT_MNIST = _MAXOUT | {"lr": 0.05, "momentum": 0.5, "epochs": 100}
_CNN: dict[str, Any] = {
    "batch": 100,
    "lr": 0.01,
    "weight_decay": 1e-3,
    "schedule": "multistep",
    "milestones": (60 / 90, 80 / 90, 85 / 90),  # of 90,000 iterations
    "epochs": 180,
}
_DSN: dict[str, Any] = {
    "activation": "relu",
    "batch": 100,
    "lr": 0.025,
    "weight_decay": 5e-4,
    "schedule": "multistep",
    "milestones": (150 / 200, 170 / 200),  # of 200,000 iterations; companions rest from 50,000 on
    "gamma": 0.05,
    "epochs": 400,
}
_GOOGLENET: dict[str, Any] = {
    "batch": 32,
    "lr": 0.01,
    "weight_decay": 2e-4,
    "schedule": "poly",
    "preprocessing": "mean",
    "augmentation": "crops+flips",
}
_RELU: dict[str, Any] = {"activation": "relu", "batch": 100, "lr": 0.01, **_LINEAR}
_SOFTMAX = _RELU | {"epochs": 20}


def _apl(hinges: int) -> dict[str, Any]:
    return {"activation": "apl", "options": {"hinges": hinges, "per": "neuron"}}


# By system and data set. GoogLeNet takes any activation; the others are one of a kind.
RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    system: {
        "cifar10": {"net": "maxout-cifar10", "activation": system, **_MAXOUT, **_WHITE},
        "cifar100": {"net": "maxout-cifar100", "activation": system, **_MAXOUT, **_WHITE},
        "mnist": {"net": "maxout-mnist", "activation": system, **_MAXOUT_MNIST},
    }
    for system in ("maxout", "probout")
} | {
    "apl-network": {
        "cifar10": {"net": "cnn-cifar10", **_apl(hinges=5), **_CNN, **_WHITE},
        "cifar100": {"net": "cnn-cifar100", **_apl(hinges=2), **_CNN, **_WHITE},
    },
    "dsn": {
        "cifar10": {"net": "dsn-cifar10", **_DSN, "preprocessing": "gcn"},
        "cifar100": {"net": "dsn-cifar100", **_DSN, "preprocessing": "gcn"},
        # At the rate for CIFAR-10, four squared hinge losses diverge on MNIST.
        "mnist": {"net": "dsn-mnist", **_DSN, "lr": 0.005, "epochs": 100},
    },
    "tree-prior": {
        "cifar100": {"net": "tree-cifar100", "activation": "relu", **_CNN, **_WHITE},
    },
    "stochastic-pooling": {
        "mnist": {"net": "stochastic-pooling-mnist", **_RELU, "weight_decay": 1e-3, "epochs": 100},
    },
    "googlenet": {
        "imagenette": {"net": "googlenet-imagenette", **_GOOGLENET, "epochs": 100},
        "imagenet": {"net": "googlenet-imagenet", **_GOOGLENET, "epochs": 60},
    },
    "linear": {
        "cifar10": {"net": "linear-cifar10", **_SOFTMAX, **_WHITE},
        "cifar100": {"net": "linear-cifar100", **_SOFTMAX, **_WHITE},
        "mnist": {"net": "linear-mnist", **_SOFTMAX},
    },
}


def rival(system: str, dataset: str, seed: int, **decisions: Any) -> Run:
    """The run that trains a system as published, at its published length.

    Args:
        system: One of `RECIPES`.
        dataset: One of the data sets it has a recipe for.
        seed: The seed.
        decisions: Fields of `Run` that are to be different, such as ``epochs=SHORT``; for
            GoogLeNet its ``activation`` must be among them.

    Example:
        >>> rival("dsn", "cifar10", seed=1, augmentation="flips").epochs
        400
        >>> rival("googlenet", "imagenette", seed=1, activation="srelu").freeze
        5
    """
    check_choice("system", system, RECIPES)
    check_choice(f"data set for {system}", dataset, RECIPES[system])
    fields = RECIPES[system][dataset] | decisions
    if "activation" not in fields:
        raise ValueError(f"{system} takes any activation: say which, as activation=...")
    return Run(dataset=dataset, seed=seed, **with_freeze(fields))
