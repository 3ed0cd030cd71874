"""The runs of the reproduction in blocks, in the order in which they are worth running."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ..choices import check_choice
from ..run import Run
from .contests import Contest, Entry
from .rows import ROWS

CIFAR = ("cifar10", "cifar100")
REHEARSAL = "rehearsal"


class Block(NamedTuple):
    """Contests that are run together, and what for, in words."""

    words: str
    contests: tuple[Contest, ...]


def _contest(
    block: str,
    condition: str,
    activations: Sequence[str],
    count: int,
    length: str = "short",
    after: Contest | None = None,
    base: str | None = None,
) -> Contest:
    entries = tuple(
        Entry(row, partial(_run, row, condition, length), base=activation == base)
        for activation in activations
        for row in [f"nin+{activation}"]
    )
    dataset = condition.partition("+")[0]
    name = block if block.endswith(dataset) else f"{block}-{dataset}"
    return Contest(name, condition, length, entries, count, after)


def _run(row: str, condition: str, length: str, seed: int) -> Run:
    return ROWS[row](condition, seed, length)


_RIVALS = ("relu", "prelu", "srelu")
_HEADLINE = {c: _contest("headline", c, _RIVALS, 3) for c in CIFAR}

BLOCKS: dict[str, Block] = {
    "headline": Block(
        "ReLU, PReLU and SReLU on both CIFARs, 100 epochs, 3 seeds", tuple(_HEADLINE.values())
    ),
    "seeds": Block(
        "PReLU and SReLU once more, over 5 further seeds",
        tuple(_contest("seeds", c, _RIVALS[1:], 5, after=_HEADLINE[c]) for c in CIFAR),
    ),
    "published-cifar10": Block(
        "the same three at the published length, CIFAR-10, 2 seeds",
        (_contest("published-cifar10", "cifar10", _RIVALS, 2, "published"),),
    ),
    "published-cifar100": Block(
        "the same three at the published length, CIFAR-100, 2 seeds",
        (_contest("published-cifar100", "cifar100", _RIVALS, 2, "published"),),
    ),
    "shared": Block(
        "channel-shared SReLU against channel-wise, CIFAR-10, 3 seeds (Table 1)",
        (_contest("shared", "cifar10", ("srelu", "srelu-shared"), 3, base="srelu"),),
    ),
    "units": Block(
        "APL and SReLU set by hand beside SReLU, both CIFARs, 3 seeds",
        tuple(
            _contest("units", c, ("srelu", "apl", "srelu-manual"), 3, base="srelu") for c in CIFAR
        ),
    ),
    "mnist": Block(
        "ReLU, PReLU and SReLU on MNIST, 50 epochs, 3 seeds (Table 4)",
        (_contest("mnist", "mnist", _RIVALS, 3),),
    ),
    "flips": Block(
        "ReLU, PReLU and SReLU with mirrored images, both CIFARs, 3 seeds",
        tuple(_contest("flips", f"{c}+flips", _RIVALS, 3) for c in CIFAR),
    ),
    REHEARSAL: Block(
        "all of this in a minute: 4 epochs of digits, 2 seeds; counts for no table",
        (_contest(REHEARSAL, "digits", _RIVALS, 2),),
    ),
}


def contests(names: Sequence[str] | None = None) -> list[Contest]:
    """The contests of blocks, or single ones, by name; if none is named, all that count.

    Example:
        >>> [contest.name for contest in contests(["headline"])]
        ['headline-cifar10', 'headline-cifar100']
    """
    single = {c.name: (c,) for block in BLOCKS.values() for c in block.contests}
    known = single | {name: block.contests for name, block in BLOCKS.items()}
    for name in names or ():
        check_choice("block", name, known)
    counting = [name for name in BLOCKS if name != REHEARSAL]
    return [contest for name in names or counting for contest in known[name]]
