"""SReLU and PReLU against other activations: paired differences, tests and intervals.

SReLU against ReLU and PReLU is the question that the reproduction asks first. PReLU against ReLU:
how much of SReLU's gain is had with one parameter a channel; against LReLU: whether that has to be
trained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..analysis.comparison import BaselineDifference
from ..analysis.comparison_tables import NOTHING, TextTable, format_interval, paired_numbers
from ..analysis.sample_statistics import FEWEST_PAIRS, PooledDeviation, holm
from ..config.recipes import LENGTHS
from ..util.package_files import read_toml
from .experiments import BLOCKS
from .published import ERRORS, NOTES, PACKAGE, TITLES
from .results import PaperResults

NAMES: dict[str, str] = NOTES["names"]


class ComparisonFamily(NamedTuple):
    """An activation against baselines: one family of tests.

    Attributes:
        target: The activation.
        baselines: What it is measured against.
        blocks: Whose experiments have their runs.
        conditions: The data sets.
        length: How long they were trained.
        words: What the title calls the baselines.
    """

    target: str
    baselines: tuple[str, ...]
    blocks: tuple[str, ...]
    conditions: tuple[str, ...]
    length: str
    words: str

    @property
    def title(self) -> str:
        epochs = LENGTHS[self.length][self.conditions[0].partition("+")[0]]
        return f"{NAMES[self.target]}'s test error minus that of {self.words}, {epochs} epochs"


COMPARISONS = [
    ComparisonFamily(**fields) for fields in read_toml(PACKAGE, "comparisons.toml")["families"]
]
FIRST, FURTHER = COMPARISONS[0], COMPARISONS[2]


class Difference(NamedTuple):
    """The error of a target minus that of a baseline on one data set.

    Attributes:
        baseline: The baseline.
        condition: The data set.
        paper: The difference in the paper.
        versus: Ours, with its intervals.
        pooled: The spread that the pooled interval is made from.
        p: The paired test's p-value, corrected by Holm over all differences of the comparison.
    """

    baseline: str
    condition: str
    paper: float
    versus: BaselineDifference
    pooled: PooledDeviation | None
    p: float | None = None

    @property
    def title(self) -> str:
        """The baseline and the data set."""
        return f"{NAMES[self.baseline]}, {TITLES[self.condition]}"


def differences(results: PaperResults, family: ComparisonFamily = FIRST) -> list[Difference]:
    """What the records have of a comparison, a data set after the other."""
    experiments = [e for name in family.blocks for e in BLOCKS[name].experiments]
    found = []
    for condition in family.conditions:
        comparison = results.comparison([e for e in experiments if e.condition == condition])
        if comparison is None:
            continue
        rivals = {rival.records[0].run.activation: rival for rival in comparison.rivals}
        for name in (n for n in family.baselines if {n, family.target} <= rivals.keys()):
            against = replace(comparison, baseline=rivals[name])
            versus = against.differences.get(rivals[family.target].name)
            if versus is not None:
                paper = ERRORS[f"nin+{family.target}", condition] - ERRORS[f"nin+{name}", condition]
                found.append(Difference(name, condition, paper, versus, comparison.pooled))
    corrected = holm([d.versus.paired.p for d in found])
    return [d._replace(p=p) for d, p in zip(found, corrected, strict=True)]


def make_tables(results: PaperResults) -> list[TextTable]:
    """The differences as tables, for each comparison that has any."""
    made = []
    for family in COMPARISONS:
        found = differences(results, family)
        if found:
            made.append(_tests(found, family))
            if family.target == "srelu":
                made.append(_other_intervals(found, family))
    return made


def make_main_table(results: PaperResults) -> list[TextTable]:
    """SReLU's tests alone, of the first comparison that has any."""
    first = f"{NAMES['srelu']} minus"
    return [table for table in make_tables(results) if table.headers[0] == first][:1]


def _tests(found: list[Difference], family: ComparisonFamily) -> TextTable:
    rows = [[d.title, f"{d.paper:+.2f}", *paired_numbers(d.versus.paired, d.p)] for d in found]
    tests = sum(d.p is not None for d in found)
    number = "this one test" if tests == 1 else f"{tests} tests"
    note = NOTES["differences"].format(fewest=FEWEST_PAIRS)
    note += f"; p is two-sided, corrected by Holm over {number}." if tests else "."
    headers = [f"{NAMES[family.target]} minus", "paper", "ours", "95 % interval", "n", "p (Holm)"]
    return TextTable(family.title, headers, rows, note)


def _other_intervals(found: list[Difference], family: ComparisonFamily) -> TextTable:
    rows = [
        [
            d.title,
            str(d.versus.paired.n),
            format_interval(d.versus.pooled),
            str(d.pooled.degrees) if d.pooled else NOTHING,
            format_interval(d.versus.images),
        ]
        for d in found
    ]
    headers = [f"{NAMES[family.target]} minus", "n", "pooled", "degrees of freedom", "images"]
    return TextTable(f"{family.title}: other intervals", headers, rows, NOTES["intervals"])
