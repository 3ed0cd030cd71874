"""SReLU against ReLU and against PReLU: the question that the reproduction asks first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..comparison import Versus
from ..recipes import LENGTHS
from ..statistics import Pooled, holm
from ..tables import NOTHING, Grid, interval, probability
from .blocks import BLOCKS, CIFAR
from .published import TABLE2, TITLES
from .standing import Standing

HERO, RIVALS = "srelu", ("relu", "prelu")
# The contests in which the three meet, by length.
MEETINGS = {"short": ("headline", "seeds"), "published": tuple(f"published-{c}" for c in CIFAR)}


@dataclass(frozen=True)
class Difference:
    """SReLU's error minus a rival's on one data set.

    Attributes:
        rival: The rival.
        condition: The data set.
        paper: The difference in the paper's Table 2.
        versus: Ours, with its intervals.
        pooled: The spread that the pooled interval is made from.
        p: The paired test's p-value, corrected by Holm over all differences at this length.
    """

    rival: str
    condition: str
    paper: float
    versus: Versus
    pooled: Pooled | None
    p: float | None = None


def differences(standing: Standing, length: str = "short") -> list[Difference]:
    """What the records have of SReLU against each rival on both data sets, at a length."""
    blocks = [BLOCKS[name] for name in MEETINGS[length]]
    errors = {row.name: row.errors for row in TABLE2.rows}
    found = []
    for condition in CIFAR:
        met = [c for block in blocks for c in block.contests if c.condition == condition]
        comparison = standing.comparison(met)
        if comparison is None:
            continue
        for rival in (r for r in comparison.rivals if r.name in RIVALS):
            versus = replace(comparison, baseline=rival).versus.get(HERO)
            if versus is not None:
                paper = errors[f"nin+{HERO}"][condition] - errors[f"nin+{rival.name}"][condition]
                found.append(Difference(rival.name, condition, paper, versus, comparison.pooled))
    corrected = holm([d.versus.paired.p for d in found])
    return [replace(d, p=p) for d, p in zip(found, corrected, strict=True)]


def grids(standing: Standing) -> list[Grid]:
    """The differences as tables, for each length that has any."""
    made = []
    for length in LENGTHS:
        found = differences(standing, length)
        if found:
            made += [_tests(found, length), _other_intervals(found, length)]
    return made


def _title(words: str, length: str) -> str:
    return (
        f"SReLU's test error minus that of its rivals, {LENGTHS[length]['cifar10']} epochs{words}"
    )


def _tests(found: list[Difference], length: str) -> Grid:
    rows = [
        [
            _name(d),
            f"{d.paper:+.2f}",
            f"{d.versus.paired.mean:+.2f}",
            interval(d.versus.paired.interval),
            str(d.versus.paired.n),
            probability(d.p),
        ]
        for d in found
    ]
    tests = sum(d.p is not None for d in found)
    note = (
        "Points of percent. Paired over n seeds, Student's 95 % interval; p is two-sided, "
        f"corrected by Holm over {'this one test' if tests == 1 else f'these {tests} tests'}."
    )
    headers = ["SReLU minus", "paper", "ours", "95 % interval", "n", "p (Holm)"]
    return Grid(_title("", length), headers, rows, note)


def _other_intervals(found: list[Difference], length: str) -> Grid:
    rows = [
        [
            _name(d),
            interval(d.versus.pooled),
            str(d.pooled.degrees) if d.pooled else NOTHING,
            interval(d.versus.images),
        ]
        for d in found
    ]
    note = (
        "95 % intervals of the same differences. Pooled: from the spread within all rivals on the "
        "data set, means over all their seeds; images: bootstrap over the test images, the paired "
        "seeds being given."
    )
    headers = ["SReLU minus", "pooled", "degrees of freedom", "images"]
    return Grid(_title(": other intervals", length), headers, rows, note)


def _name(difference: Difference) -> str:
    title = {"relu": "ReLU", "prelu": "PReLU"}[difference.rival]
    return f"{title}, {TITLES[difference.condition]}"
