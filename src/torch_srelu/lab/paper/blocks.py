"""The runs of the reproduction in blocks, in the order in which they are worth running."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..config.run import Run
from ..records.run_record import Results
from ..records.run_status import FINISHED
from ..util.choices import check_choice
from . import variants
from .contests import Block, Contest, Entry, with_needs
from .rows import ROWS, nin_lrelu
from .system_blocks import SYSTEM_BLOCKS

CIFAR = ("cifar10", "cifar100")
REHEARSAL = "rehearsal"


def _entry(row: str, condition: str, length: str = "short", base: bool = False) -> Entry:
    """A row of the paper's tables as a rival."""
    if row == "nin+lrelu":
        return Entry(row, lambda seed, results: _lrelu(condition, seed, length, results), base)
    return Entry(row, lambda seed, _: ROWS[row](condition, seed, length), base)


def _lrelu(condition: str, seed: int, length: str, results: Results) -> Run | None:
    slope = variants.chosen_slope(condition, results)
    return None if slope is None else nin_lrelu(condition, seed, length, slope)


def _own(row: str, make: Callable[[int], Run]) -> Entry:
    """A rival that is in no table of the paper."""
    return Entry(row, lambda seed, _: make(seed))


def _contest(
    block: str,
    condition: str,
    activations: Sequence[str],
    count: int,
    length: str = "short",
    after: Contest | None = None,
    like: Contest | None = None,
    base: str | None = None,
    needs: Contest | None = None,
) -> Contest:
    entries = tuple(_entry(f"nin+{a}", condition, length, a == base) for a in activations)
    dataset = condition.partition("+")[0]
    name = block if block.endswith(dataset) else f"{block}-{dataset}"
    return Contest(name, condition, length, entries, count, after, like, needs)


def _beside_srelu(
    block: str, condition: str, rivals: Sequence[str], needs: Contest | None = None
) -> Contest:
    """Further rivals of SReLU, at the seeds at which it met its first ones."""
    entries, like = ("srelu", *rivals), _FIRST[condition]
    return _contest(block, condition, entries, 3, like=like, base="srelu", needs=needs)


def _ablation(name: str) -> Contest:
    base = _entry("nin+srelu", "cifar10", base=True)
    changed = _own(f"srelu:{name}", lambda seed: variants.ablation(name, "cifar10", seed))
    like = _HEADLINE["cifar10"]
    return Contest(f"ablation-{name}", "cifar10", "short", (base, changed), 3, like=like)


def _slopes(condition: str) -> Contest:
    def candidate(slope: float) -> Entry:
        make = variants.slope_candidate
        return _own(f"lrelu:{slope}", lambda seed: make(slope, condition, seed))

    return Contest(
        f"slopes-{condition}", condition, "short", tuple(map(candidate, variants.SLOPES)), 1
    )


def _reuse() -> Contest:
    def further(activation: str) -> Entry:
        def run(seed: int, results: Results) -> Run | None:
            ended = results.get(variants.before_reuse("cifar10", seed).key())
            if ended is not None and ended["status"] != FINISHED:
                return None  # there are no weights to begin with
            return variants.further(activation, "cifar10", seed)

        return Entry(f"reuse:{activation}", run)

    first = _own("reuse:before", lambda seed: variants.before_reuse("cifar10", seed))
    before = Contest("reuse-before", "cifar10", "short", (first,), 3)
    rivals = (further("lrelu"), further("srelu"))
    return Contest("reuse-cifar10", "cifar10", "short", rivals, 3, like=before, needs=before)


def _alone(name: str, condition: str, row: str, make: Callable[[int], Run]) -> Contest:
    """A rival that is in no table of the paper, over three seeds."""
    return Contest(name, condition, "short", (_own(row, make),), 3)


def _compute() -> Contest:
    return _alone(
        "compute-cifar10", "cifar10", "relu:longer", lambda seed: variants.longer("cifar10", seed)
    )


_RIVALS = ("relu", "prelu", "srelu")
_HEADLINE = {c: _contest("headline", c, _RIVALS, 3) for c in CIFAR}
_MNIST = _contest("mnist", "mnist", _RIVALS, 3)
_FIRST = {**_HEADLINE, "mnist": _MNIST}  # who meets SReLU first under a condition
_SLOPES = {c: _slopes(c) for c in (*CIFAR, "mnist")}

BLOCKS: dict[str, Block] = {
    "headline": Block(
        "ReLU, PReLU and SReLU on both CIFARs, 100 epochs, 3 seeds", tuple(_HEADLINE.values())
    ),
    "seeds": Block(
        "PReLU and SReLU once more, over 5 further seeds",
        tuple(_contest("seeds", c, _RIVALS[1:], 5, after=_HEADLINE[c]) for c in CIFAR),
    ),
    "start": Block(
        "ReLU from CIFAR-100's published start, and on MNIST from biases of 0: is it dead?",
        (
            _alone("start-cifar100", "cifar100", "relu:published-start", variants.published_start),
            _alone("start-mnist", "mnist", "relu:zero-biases", variants.zero_biases),
        ),
    ),
    "published-cifar10": Block(
        "the same three at the published length, CIFAR-10, 2 seeds",
        (_contest("published-cifar10", "cifar10", _RIVALS, 2, "published"),),
    ),
    "published-cifar100": Block(
        "the same three at the published length, CIFAR-100, 2 seeds",
        (_contest("published-cifar100", "cifar100", _RIVALS, 2, "published"),),
    ),
    "ablations": Block(
        "SReLU with one decision changed, CIFAR-10, 3 seeds each",
        tuple(map(_ablation, variants.ABLATIONS)),
    ),
    "shared": Block(
        "channel-shared SReLU against channel-wise, CIFAR-10, 3 seeds (Table 1)",
        (_beside_srelu("shared", "cifar10", ("srelu-shared",)),),
    ),
    "reuse": Block(
        "a leaky ReLU network, then 20 epochs as it is or as SReLU, CIFAR-10, 3 seeds",
        (_reuse(),),
    ),
    "compute": Block("ReLU for longer than SReLU takes, CIFAR-10, 3 seeds", (_compute(),)),
    "lrelu": Block(
        "LReLU's slope by validation, then LReLU on both CIFARs and MNIST, 3 seeds",
        tuple(_beside_srelu("lrelu", c, ("lrelu",), _SLOPES[c]) for c in _SLOPES),
    ),
    "units": Block(
        "APL and SReLU set by hand beside SReLU, both CIFARs, 3 seeds",
        tuple(_beside_srelu("units", c, ("apl", "srelu-manual")) for c in CIFAR),
    ),
    "mnist": Block(
        "ReLU, PReLU and SReLU on MNIST, 50 epochs, 3 seeds (Table 4)",
        (_MNIST,),
    ),
    "flips": Block(
        "ReLU, PReLU and SReLU with mirrored images, both CIFARs, 3 seeds",
        tuple(_contest("flips", f"{c}+flips", _RIVALS, 3) for c in CIFAR),
    ),
    "flips-few": Block(
        "LReLU and APL with mirrored images, both CIFARs, 1 seed",
        tuple(
            _contest("flips-few", f"{c}+flips", ("lrelu", "apl"), 1, needs=_SLOPES[c])
            for c in CIFAR
        ),
    ),
    "apl-neuron": Block(
        "APL per neuron, as its authors published it, CIFAR-10, 1 seed",
        (_contest("apl-neuron", "cifar10", ("apl-neuron",), 1),),
    ),
    **SYSTEM_BLOCKS,
    REHEARSAL: Block(
        "all of this in a minute: 4 epochs of digits, 2 seeds; counts for no table",
        (_contest(REHEARSAL, "digits", _RIVALS, 2),),
    ),
}


def contests(names: Sequence[str] | None = None) -> list[Contest]:
    """The contests of blocks, or single ones, by name, each after the one that it needs.

    If none is named, all that count.

    Example:
        >>> [contest.name for contest in contests(["headline"])]
        ['headline-cifar10', 'headline-cifar100']
    """
    single = {c.name: (c,) for block in BLOCKS.values() for c in with_needs(block.contests)}
    known = single | {name: block.contests for name, block in BLOCKS.items()}
    for name in names or ():
        check_choice("block", name, known, listed_by="srelu paper run")
    counting = [name for name in BLOCKS if name != REHEARSAL]
    return with_needs(contest for name in names or counting for contest in known[name])
