"""SReLU against ReLU and against PReLU: the question that the reproduction asks first.

PReLU against ReLU: how much of SReLU's gain is had with one parameter a channel; against LReLU:
whether that has to be trained. And SReLU against its other rivals, and on other data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...analysis.comparison import BaselineDifference
from ...analysis.comparison_tables import NOTHING, TextTable, format_interval, format_p_value
from ...analysis.sample_statistics import FEWEST_PAIRS, PooledDeviation, holm
from ...config.recipes import LENGTHS
from ..blocks import BLOCKS, CIFAR
from ..published import FLIPS10, FLIPS100, MNIST, TABLE2, TABLE4, TITLES
from ..standing import Standing

NAMES = {
    "relu": "ReLU",
    "lrelu": "LReLU",
    "prelu": "PReLU",
    "apl": "APL",
    "srelu-manual": "SReLU by hand",
    "srelu": "SReLU",
}


# The paper's errors of NIN with an activation under a condition.
PAPER = {
    (row.name.removeprefix("nin+"), condition): error
    for table in (TABLE2, TABLE4)
    for row in table.rows
    if row.name.startswith("nin+")
    for condition, error in row.errors.items()
}


@dataclass(frozen=True)
class Meeting:
    """An activation and the rivals that it is measured against together: one family of tests.

    Attributes:
        hero: The activation.
        rivals: Its rivals.
        blocks: Whose contests have their runs.
        conditions: The data sets.
        length: How long they were trained.
        words: What the title calls the rivals.
    """

    hero: str
    rivals: tuple[str, ...]
    blocks: tuple[str, ...]
    conditions: tuple[str, ...] = CIFAR
    length: str = "short"
    words: str = "its rivals"

    @property
    def title(self) -> str:
        epochs = LENGTHS[self.length][self.conditions[0].partition("+")[0]]
        return f"{NAMES[self.hero]}'s test error minus that of {self.words}, {epochs} epochs"


_MAIN, _FIRST, _LATER = ("relu", "prelu"), ("headline", "seeds"), ("lrelu", "apl", "srelu-manual")
_PUBLISHED = tuple(f"published-{c}" for c in CIFAR)
_OTHER_DATA = ("relu", "lrelu", "prelu")
FIRST = Meeting("srelu", _MAIN, _FIRST)
FURTHER = Meeting("srelu", _LATER, ("lrelu", "units"), words="further rivals")
MEETINGS = (
    FIRST,
    Meeting("prelu", ("relu",), _FIRST),
    FURTHER,
    Meeting("prelu", ("lrelu",), (*_FIRST, "lrelu"), words="LReLU"),
    Meeting(
        "srelu", _MAIN, ("flips",), (FLIPS10, FLIPS100), words="its rivals with mirrored images"
    ),
    Meeting("srelu", _OTHER_DATA, ("mnist", "lrelu"), (MNIST,), words="its rivals on MNIST"),
    Meeting("srelu", _MAIN, _PUBLISHED, length="published"),
    Meeting("prelu", ("relu",), _PUBLISHED, length="published"),
)


@dataclass(frozen=True)
class Difference:
    """The error of an activation minus that of a rival on one data set.

    Attributes:
        rival: The rival.
        condition: The data set.
        paper: The difference in the paper.
        versus: Ours, with its intervals.
        pooled: The spread that the pooled interval is made from.
        p: The paired test's p-value, corrected by Holm over all differences of the meeting.
    """

    rival: str
    condition: str
    paper: float
    versus: BaselineDifference
    pooled: PooledDeviation | None
    p: float | None = None


def differences(standing: Standing, meeting: Meeting = FIRST) -> list[Difference]:
    """What the records have of a meeting, a data set after the other."""
    contests = [contest for name in meeting.blocks for contest in BLOCKS[name].contests]
    found = []
    for condition in meeting.conditions:
        comparison = standing.comparison([c for c in contests if c.condition == condition])
        if comparison is None:
            continue
        rivals = {rival.records[0].run.activation: rival for rival in comparison.rivals}
        hero = rivals.get(meeting.hero)
        if hero is None:
            continue
        for name in (name for name in meeting.rivals if name in rivals):
            versus = replace(comparison, baseline=rivals[name]).differences.get(hero.name)
            if versus is not None:
                paper = PAPER[meeting.hero, condition] - PAPER[name, condition]
                found.append(Difference(name, condition, paper, versus, comparison.pooled))
    corrected = holm([d.versus.paired.p for d in found])
    return [replace(d, p=p) for d, p in zip(found, corrected, strict=True)]


def grids(standing: Standing) -> list[TextTable]:
    """The differences as tables, for each meeting that has any."""
    made = []
    for meeting in MEETINGS:
        found = differences(standing, meeting)
        if found:
            made.append(_tests(found, meeting))
            if meeting.hero == "srelu":
                made.append(_other_intervals(found, meeting))
    return made


def quoted(standing: Standing) -> list[TextTable]:
    """SReLU's tests alone, of the first meeting that has any."""
    for meeting in (meeting for meeting in MEETINGS if meeting.hero == "srelu"):
        found = differences(standing, meeting)
        if found:
            return [_tests(found, meeting)]
    return []


def _tests(found: list[Difference], meeting: Meeting) -> TextTable:
    rows = [
        [
            _name(d),
            f"{d.paper:+.2f}",
            f"{d.versus.paired.mean:+.2f}",
            format_interval(d.versus.paired.interval),
            str(d.versus.paired.n),
            format_p_value(d.p),
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
    headers = [f"{NAMES[meeting.hero]} minus", "paper", "ours", "95 % interval", "n", "p (Holm)"]
    return TextTable(meeting.title, headers, rows, note)


def _other_intervals(found: list[Difference], meeting: Meeting) -> TextTable:
    rows = [
        [
            _name(d),
            str(d.versus.paired.n),
            format_interval(d.versus.pooled),
            str(d.pooled.degrees) if d.pooled else NOTHING,
            format_interval(d.versus.images),
        ]
        for d in found
    ]
    note = (
        "Two other 95 % intervals. Pooled: of the difference of the means over all seeds of "
        "either in these contests, unpaired, from the spread within all their rivals on the data "
        "set, as if it were the same for all. Images: bootstrap over the test images, for the "
        "networks of the n seeds that both have."
    )
    headers = [f"{NAMES[meeting.hero]} minus", "n", "pooled", "degrees of freedom", "images"]
    return TextTable(f"{meeting.title}: other intervals", headers, rows, note)


def _name(difference: Difference) -> str:
    return f"{NAMES[difference.rival]}, {TITLES[difference.condition]}"
