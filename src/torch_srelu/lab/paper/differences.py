"""SReLU against ReLU and against PReLU: the question that the reproduction asks first.

And PReLU against ReLU: how much of SReLU's gain is had with one parameter a channel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..comparison import Versus
from ..recipes import LENGTHS
from ..statistics import FEWEST_PAIRS, Pooled, holm
from ..tables import NOTHING, Grid, interval, probability
from .blocks import BLOCKS, CIFAR
from .published import TABLE2, TITLES
from .standing import Standing

AGAINST = {"srelu": ("relu", "prelu"), "prelu": ("relu",)}
NAMES = {"relu": "ReLU", "prelu": "PReLU", "srelu": "SReLU"}
# The contests in which the three meet, by length.
MEETINGS = {"short": ("headline", "seeds"), "published": tuple(f"published-{c}" for c in CIFAR)}


@dataclass(frozen=True)
class Difference:
    """The error of an activation minus that of a rival on one data set.

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


def differences(standing: Standing, length: str = "short", hero: str = "srelu") -> list[Difference]:
    """What the records have of ``hero`` against each rival on both data sets, at a length."""
    blocks = [BLOCKS[name] for name in MEETINGS[length]]
    errors = {row.name: row.errors for row in TABLE2.rows}
    found = []
    for condition in CIFAR:
        met = [c for block in blocks for c in block.contests if c.condition == condition]
        comparison = standing.comparison(met)
        if comparison is None:
            continue
        for rival in (r for r in comparison.rivals if r.name in AGAINST[hero]):
            versus = replace(comparison, baseline=rival).versus.get(hero)
            if versus is not None:
                paper = errors[f"nin+{hero}"][condition] - errors[f"nin+{rival.name}"][condition]
                found.append(Difference(rival.name, condition, paper, versus, comparison.pooled))
    corrected = holm([d.versus.paired.p for d in found])
    return [replace(d, p=p) for d, p in zip(found, corrected, strict=True)]


def grids(standing: Standing) -> list[Grid]:
    """The differences as tables, for each length that has any."""
    made = []
    for length in LENGTHS:
        for hero in AGAINST:
            found = differences(standing, length, hero)
            if found:
                made.append(_tests(found, length, hero))
        found = differences(standing, length)
        if found:
            made.append(_other_intervals(found, length))
    return made


def quoted(standing: Standing) -> list[Grid]:
    """SReLU's tests alone, at the length that has most seeds: the shortest."""
    for length in LENGTHS:
        found = differences(standing, length)
        if found:
            return [_tests(found, length, "srelu")]
    return []


def _title(hero: str, length: str) -> str:
    return (
        f"{NAMES[hero]}'s test error minus that of its rivals, {LENGTHS[length]['cifar10']} epochs"
    )


def _tests(found: list[Difference], length: str, hero: str) -> Grid:
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
    family = "this one test" if tests == 1 else f"{tests} tests"
    note = (
        "Points of percent. Paired over n seeds, Student's 95 % interval and test from n = "
        f"{FEWEST_PAIRS} on"
    )
    note += f"; p is two-sided, corrected by Holm over {family}." if tests else "."
    headers = [f"{NAMES[hero]} minus", "paper", "ours", "95 % interval", "n", "p (Holm)"]
    return Grid(_title(hero, length), headers, rows, note)


def _other_intervals(found: list[Difference], length: str) -> Grid:
    rows = [
        [
            _name(d),
            str(d.versus.paired.n),
            interval(d.versus.pooled),
            str(d.pooled.degrees) if d.pooled else NOTHING,
            interval(d.versus.images),
        ]
        for d in found
    ]
    note = (
        "Two other 95 % intervals. Pooled: of the difference of the means over all seeds of "
        "either, unpaired, from the spread within all rivals on the data set, as if it were the "
        "same for all. Images: bootstrap over the test images, for the networks of the n seeds "
        "that both have."
    )
    headers = ["SReLU minus", "n", "pooled", "degrees of freedom", "images"]
    return Grid(f"{_title('srelu', length)}: other intervals", headers, rows, note)


def _name(difference: Difference) -> str:
    return f"{NAMES[difference.rival]}, {TITLES[difference.condition]}"
