"""The rows of the paper's tables that are whole systems: one function a row, in `SYSTEMS`.

Each system is trained as its authors did (`lab.config.rival_recipes`), with what all rows of the
reproduction share: averaged weights as a second result, bfloat16, bit-equal repetition. On CIFAR
most are cut to 60 epochs, with their schedule: such a run is called short and says nothing about
the paper's value. An epoch of CIFAR is 390 steps of 128 images or 500 of 100, one of MNIST 468 or
600, one of Imagenette 295 of 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..config.recipes import CONDITIONS, FAITHFUL, recipe
from ..config.rival_recipes import RECIPES, SHORT, rival
from ..config.run import Run

System = Callable[[str, int], Run]  # (condition, seed) -> Run
SYSTEMS: dict[str, System] = {}

# How long each system's own training is, by the name of its network.
_WHOLE = {of["net"]: of["epochs"] for own in RECIPES.values() for of in own.values()}


def whole_length(run: Run) -> int:
    """How many epochs the run's system takes as published; the run's own if it is none of these.

    Example:
        >>> run = maxout("cifar10", seed=1)
        >>> run.epochs, whole_length(run)
        (60, 500)
    """
    return _WHOLE.get(run.net, run.epochs)


def is_short(run: Run) -> bool:
    """Whether the run is cut: its error is that of no published training."""
    return run.epochs < whole_length(run)


def _system(name: str) -> Callable[[System], System]:
    def add(make: System) -> System:
        SYSTEMS[name] = make
        return make

    return add


def _published(name: str, condition: str, seed: int, **decisions: Any) -> Run:
    return rival(name, seed=seed, **{**CONDITIONS[condition], **FAITHFUL, **decisions})


def _short(name: str, condition: str, seed: int) -> Run:
    """The system for 60 epochs of CIFAR; on MNIST at its whole length."""
    cut = {"epochs": SHORT} if condition.startswith("cifar") else {}
    return _published(name, condition, seed, **cut)


@_system("maxout")
def maxout(condition: str, seed: int) -> Run:
    """Maxout networks (Goodfellow et al., 2013).

    Command: ``srelu paper run systems-cifar10``, ``systems-cifar100``, ``systems-flips``,
    ``systems-mnist``.
    Cost: 60 epochs of CIFAR, short of 500; 100 of MNIST.
    Paper: cifar10 11.68 %, cifar100 38.57 %, cifar10+flips 9.38 %, mnist 0.47 %.
    """
    return _short("maxout", condition, seed)


@_system("probmaxout")
def probmaxout(condition: str, seed: int) -> Run:
    """Probabilistic maxout (Springenberg and Riedmiller, 2013) in the networks of maxout.

    Command: ``srelu paper run systems-cifar10``, ``systems-cifar100``; with flips
    ``systems-left``.
    Cost: 60 epochs, short of 500.
    Paper: cifar10 11.35 %, cifar100 38.14 %, cifar10+flips 9.39 %.
    """
    return _short("probout", condition, seed)


@_system("apl")
def apl(condition: str, seed: int) -> Run:
    """The convolutional network of the APL paper (Agostinelli et al., 2014), APL per neuron.

    Command: ``srelu paper run systems-cifar10``, ``systems-cifar100``; with flips
    ``systems-left``.
    Cost: 60 epochs, short of 180.
    Paper: cifar10 11.38 %, cifar100 34.54 %, cifar10+flips 9.89 %, cifar100+flips 33.88 %.
    """
    return _short("apl-network", condition, seed)


@_system("dsn")
def dsn(condition: str, seed: int) -> Run:
    """Deeply supervised nets (Lee et al., 2014) on NIN.

    Command: ``srelu paper run systems-cifar10``, ``systems-cifar100``, ``systems-flips``,
    ``systems-mnist``.
    Cost: 400 epochs of CIFAR, the whole length, but 60 with flips, which is short; 100 of MNIST.
    Paper: cifar10 9.78 %, cifar100 34.57 %, cifar10+flips 8.22 %, mnist 0.35 %.
    """
    return (_short if condition.endswith("+flips") else _published)("dsn", condition, seed)


@_system("tree")
def tree(condition: str, seed: int) -> Run:
    """Tree-based priors (Srivastava and Salakhutdinov, 2013) on the last layer.

    Command: ``srelu paper run systems-cifar100``.
    Cost: 60 epochs, short of 180.
    Paper: cifar100 36.85 %.
    """
    return _short("tree-prior", condition, seed)


@_system("nin")
def nin(condition: str, seed: int) -> Run:
    """NIN as its authors trained it (Lin et al., 2013): max pooling, 200, 30 and 30 epochs.

    Rates, decay and initial weights are those of NIN + ReLU here: on CIFAR-10 those of Caffe's
    model zoo, on CIFAR-100 the authors', but for the weights, which were dead (block ``start``).

    Command: ``srelu paper run nin``; on CIFAR-100 and with flips ``systems-left``.
    Cost: 101,400 steps of 128 images, 260 epochs.
    Paper: cifar10 10.41 %, cifar100 35.68 %, cifar10+flips 8.81 %.
    """
    own = {**CONDITIONS[condition], **FAITHFUL}
    own |= {"net": f"nin-max-{own['dataset']}", "epochs": 260, "milestones": (200 / 260, 230 / 260)}
    return recipe(activation="relu", seed=seed, **own)


@_system("stochastic-pooling")
def stochastic_pooling(condition: str, seed: int) -> Run:
    """Stochastic pooling (Zeiler and Fergus, 2013).

    Command: ``srelu paper run systems-mnist``.
    Cost: 100 epochs.
    Paper: mnist 0.47 %.
    """
    return _short("stochastic-pooling", condition, seed)


@_system("linear")
def linear(condition: str, seed: int) -> Run:
    """One dense layer on the same images, which every system must beat.

    Command: ``srelu paper run linear``.
    Cost: 20 epochs.
    Paper: not in it.
    """
    return _published("linear", condition, seed)


@_system("linear-gcn")
def linear_gcn(condition: str, seed: int) -> Run:
    """The same on images that are not whitened, which are the input of DSN.

    Command: ``srelu paper run linear``.
    Cost: 20 epochs.
    Paper: not in it.
    """
    return _published("linear", condition, seed, preprocessing="gcn")


LINEAR = ("linear", "linear-gcn")


@_system("googlenet")
def googlenet(condition: str, seed: int) -> Run:
    """GoogLeNet + ReLU (Szegedy et al., 2014, as BVLC has it), on ten classes of ImageNet.

    Command: ``srelu paper run googlenet``.
    Cost: 29,500 steps of 32 images, 100 epochs.
    Paper: imagenet 11.10 %, of all 1,000 classes.
    """
    return _published("googlenet", condition, seed, activation="relu")


@_system("googlenet+prelu")
def googlenet_prelu(condition: str, seed: int) -> Run:
    """GoogLeNet + PReLU, on ten classes of ImageNet.

    Command: ``srelu paper run googlenet``.
    Cost: 29,500 steps of 32 images, 100 epochs.
    Paper: not in it.
    """
    return _published("googlenet", condition, seed, activation="prelu")


@_system("googlenet+srelu")
def googlenet_srelu(condition: str, seed: int) -> Run:
    """GoogLeNet + SReLU, adaptively initialised, on ten classes of ImageNet.

    Command: ``srelu paper run googlenet``.
    Cost: 29,500 steps of 32 images, 100 epochs.
    Paper: imagenet 9.86 %, of all 1,000 classes.
    """
    return _published("googlenet", condition, seed, activation="srelu")
