"""The runs of the paper's other systems in blocks: one seed each, two of GoogLeNet."""

from __future__ import annotations

from collections.abc import Iterable

from .contests import OWN, Block, Contest, Entry
from .systems import SYSTEMS

LEFT = "systems-left"
GOOGLENETS = ("googlenet", "googlenet+prelu", "googlenet+srelu")


def _entry(row: str, condition: str) -> Entry:
    return Entry(row, lambda seed, _: SYSTEMS[row](condition, seed))


def _alone(row: str, condition: str) -> Contest:
    """One system with one seed: it is compared with none."""
    name = f"{row}-{condition.replace('+', '-')}"
    return Contest(name, condition, OWN, (_entry(row, condition),), 1)


def _each(rows: Iterable[str], condition: str) -> tuple[Contest, ...]:
    return tuple(_alone(row, condition) for row in rows)


_GOOGLENET = Contest(
    "googlenet-imagenette", "imagenet", OWN, tuple(_entry(r, "imagenet") for r in GOOGLENETS), 2
)

SYSTEM_BLOCKS: dict[str, Block] = {
    "nin": Block(
        "NIN as its authors trained it, CIFAR-10, 260 epochs, 1 seed", _each(["nin"], "cifar10")
    ),
    "linear": Block(
        "a linear classifier, to be beaten, both CIFARs and MNIST, 1 seed",
        (
            *(_alone("linear", c) for c in ("cifar10", "cifar100", "mnist")),
            *(_alone("linear-gcn", c) for c in ("cifar10", "cifar100")),
        ),
    ),
    "systems-mnist": Block(
        "stochastic pooling, maxout and DSN on MNIST, whole length, 1 seed (Table 4)",
        _each(("stochastic-pooling", "maxout", "dsn"), "mnist"),
    ),
    "systems-cifar10": Block(
        "maxout, probout and the APL network for 60 epochs, DSN for 400, CIFAR-10, 1 seed",
        _each(("maxout", "probmaxout", "apl", "dsn"), "cifar10"),
    ),
    "systems-cifar100": Block(
        "the same and tree-based priors for 60 epochs, DSN for 400, CIFAR-100, 1 seed",
        _each(("maxout", "probmaxout", "apl", "tree", "dsn"), "cifar100"),
    ),
    "systems-flips": Block(
        "maxout and DSN with mirrored images, CIFAR-10, 60 epochs, 1 seed",
        _each(("maxout", "dsn"), "cifar10+flips"),
    ),
    "googlenet": Block(
        "GoogLeNet + ReLU, PReLU and SReLU on Imagenette, 100 epochs, 2 seeds (Table 5)",
        (_GOOGLENET,),
    ),
    LEFT: Block(
        "what is left of Table 2: NIN, probout and the APL network, 1 seed",
        (
            _alone("nin", "cifar100"),
            *_each(("nin", "probmaxout", "apl"), "cifar10+flips"),
            _alone("apl", "cifar100+flips"),
        ),
    ),
}
