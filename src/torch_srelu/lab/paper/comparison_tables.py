"""SReLU against other activations, against itself with one decision changed, and further pairs.

SReLU against ReLU and PReLU is the question that the reproduction asks first. PReLU against ReLU:
how much of SReLU's gain is had with one parameter a channel; against LReLU: whether that has to be
trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..analysis.comparison import Comparison, Versus
from ..analysis.sample_statistics import FEWEST_PAIRS, Pooled, holm
from ..analysis.tables import NOTHING, Grid, interval, probability
from ..config.recipes import LENGTHS
from ..records.run_status import DEAD, DIVERGED
from .experiments import BLOCKS, select_experiments, with_dependencies
from .published import CIFAR, ERRORS, FLIPS10, FLIPS100, MNIST, TITLES
from .results import Entry, PaperResults
from .rows import ABLATIONS, LONGER, REUSED_EPOCHS, REUSED_SLOPE

NAMES = {
    "relu": "ReLU",
    "lrelu": "LReLU",
    "prelu": "PReLU",
    "apl": "APL",
    "srelu-manual": "SReLU by hand",
    "srelu": "SReLU",
}


@dataclass(frozen=True)
class ComparisonFamily:
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
    conditions: tuple[str, ...] = CIFAR
    length: str = "short"
    words: str = "its rivals"

    @property
    def title(self) -> str:
        epochs = LENGTHS[self.length][self.conditions[0].partition("+")[0]]
        return f"{NAMES[self.target]}'s test error minus that of {self.words}, {epochs} epochs"


_MAIN, _FIRST, _LATER = ("relu", "prelu"), ("headline", "seeds"), ("lrelu", "apl", "srelu-manual")
_PUBLISHED = tuple(f"published-{c}" for c in CIFAR)
_FLIPS = (FLIPS10, FLIPS100)
FIRST = ComparisonFamily("srelu", _MAIN, _FIRST)
FURTHER = ComparisonFamily("srelu", _LATER, ("lrelu", "units"), words="further rivals")
COMPARISONS = (
    FIRST,
    ComparisonFamily("prelu", ("relu",), _FIRST),
    FURTHER,
    ComparisonFamily("prelu", ("lrelu",), (*_FIRST, "lrelu"), words="LReLU"),
    ComparisonFamily("srelu", _MAIN, ("flips",), _FLIPS, words="its rivals with mirrored images"),
    ComparisonFamily(
        "srelu",
        ("relu", "lrelu", "prelu"),
        ("mnist", "lrelu"),
        (MNIST,),
        words="its rivals on MNIST",
    ),
    ComparisonFamily("srelu", _MAIN, _PUBLISHED, length="published"),
    ComparisonFamily("prelu", ("relu",), _PUBLISHED, length="published"),
)


@dataclass(frozen=True)
class Difference:
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
    versus: Versus
    pooled: Pooled | None
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
        target = rivals.get(family.target)
        if target is None:
            continue
        for name in (name for name in family.baselines if name in rivals):
            versus = replace(comparison, baseline=rivals[name]).versus.get(target.name)
            if versus is not None:
                paper = (ERRORS[f"nin+{n}", condition] for n in (family.target, name))
                found.append(
                    Difference(
                        name, condition, next(paper) - next(paper), versus, comparison.pooled
                    )
                )
    corrected = holm([d.versus.paired.p for d in found])
    return [replace(d, p=p) for d, p in zip(found, corrected, strict=True)]


def difference_tables(results: PaperResults) -> list[Grid]:
    """The differences as tables, for each comparison that has any."""
    made = []
    for family in COMPARISONS:
        found = differences(results, family)
        if found:
            made.append(_tests(found, family))
            if family.target == "srelu":
                made.append(_other_intervals(found, family))
    return made


def main_difference_table(results: PaperResults) -> list[Grid]:
    """SReLU's tests alone, of the first comparison that has any."""
    for family in COMPARISONS:
        found = differences(results, family) if family.target == "srelu" else []
        if found:
            return [_tests(found, family)]
    return []


def _tests(found: list[Difference], family: ComparisonFamily) -> Grid:
    rows = [[d.title, f"{d.paper:+.2f}", *_paired(d.versus, d.p)] for d in found]
    tests = sum(d.p is not None for d in found)
    number = "this one test" if tests == 1 else f"{tests} tests"
    note = (
        "Points of percent. Paired over n seeds, Student's 95 % interval and test from n = "
        f"{FEWEST_PAIRS} on"
    )
    note += f"; p is two-sided, corrected by Holm over {number}." if tests else "."
    headers = [f"{NAMES[family.target]} minus", "paper", "ours", "95 % interval", "n", "p (Holm)"]
    return Grid(family.title, headers, rows, note)


def _paired(versus: Versus, p: float | None) -> list[str]:
    """A paired difference with its interval, n and corrected p-value."""
    paired = versus.paired
    return [f"{paired.mean:+.2f}", interval(paired.interval), str(paired.n), probability(p)]


def _other_intervals(found: list[Difference], family: ComparisonFamily) -> Grid:
    rows = [
        [
            d.title,
            str(d.versus.paired.n),
            interval(d.versus.pooled),
            str(d.pooled.degrees) if d.pooled else NOTHING,
            interval(d.versus.images),
        ]
        for d in found
    ]
    note = (
        "Two other 95 % intervals. Pooled: of the difference of the means over all seeds of "
        "either in these contests, unpaired, from the spread within all their rivals on the data "
        "set, as if it were the same for all. Images: bootstrap over the test images, for the "
        "networks of the n seeds that both have."
    )
    headers = [f"{NAMES[family.target]} minus", "n", "pooled", "degrees of freedom", "images"]
    return Grid(f"{family.title}: other intervals", headers, rows, note)


class RowPair(NamedTuple):
    """A row against another, over the seeds that both finished: each an experiment and a row."""

    words: str
    target: tuple[str, str]
    baseline: tuple[str, str]

    def difference(self, results: PaperResults) -> PairDifference:
        """Both as far as they have records, and the difference if both have finished."""
        target, baseline = results.entry_of(*self.target), results.entry_of(*self.baseline)
        if target is None or baseline is None:
            return PairDifference(self, target, baseline, None)
        versus = Comparison("", {}, (baseline, target), baseline).versus.get(target.name)
        return PairDifference(self, target, baseline, versus)


class PairDifference(NamedTuple):
    """What the records say of a pair; None where they say nothing."""

    pair: RowPair
    target: Entry | None
    baseline: Entry | None
    versus: Versus | None


def _changed(words: str, experiment: str, row: str) -> RowPair:
    return RowPair(words, (experiment, row), (experiment, "nin+srelu"))


CHANGED = [
    *(_changed(a.words, f"ablation-{name}", f"srelu:{name}") for name, a in ABLATIONS.items()),
    _changed("t_r = 1, never frozen", "units-cifar10", "nin+srelu-manual"),
    _changed("shared by channels", "shared-cifar10", "nin+srelu-shared"),
]
# Experiment and row of what is compared otherwise, by name.
CONTROLS = {
    "longer ReLU": ("compute-cifar10", "relu:longer"),
    "leaky ReLU": ("reuse-before", "reuse:before"),
    "reused as leaky ReLU": ("reuse-cifar10", "reuse:lrelu"),
    "reused as SReLU": ("reuse-cifar10", "reuse:srelu"),
}
_NAMED = CONTROLS | {
    "ReLU": ("headline-cifar10", "nin+relu"),
    "PReLU": ("headline-cifar10", "nin+prelu"),
    "SReLU": ("headline-cifar10", "nin+srelu"),
    "SReLU, CIFAR-100": ("headline-cifar100", "nin+srelu"),
    "ReLU of the published length": ("published-cifar10", "nin+relu"),
    "the same, CIFAR-100": ("published-cifar100", "nin+relu"),
    "SReLU, learning rate x 0.1": ("ablation-slow", "srelu:slow"),
    "SReLU, left side only": ("ablation-left", "srelu:left"),
}
OTHERS = [
    RowPair(f"{target} - {baseline}", _NAMED[target], _NAMED[baseline])
    for target, baseline in (
        ("reused as SReLU", "reused as leaky ReLU"),
        ("longer ReLU", "SReLU"),
        ("longer ReLU", "ReLU"),
        ("ReLU of the published length", "SReLU"),
        ("the same, CIFAR-100", "SReLU, CIFAR-100"),
        ("leaky ReLU", "SReLU"),
        ("leaky ReLU", "ReLU"),
        ("SReLU, left side only", "PReLU"),
        ("SReLU, learning rate x 0.1", "PReLU"),
        ("SReLU, learning rate x 0.1", "ReLU"),
    )
]
PAIR_NOTE = (
    "Test error in percent; the difference is paired over n seeds, with Student's 95 % "
    "interval and p corrected by Holm over this table."
)
CHANGED_NOTE = (
    "Of one side, of slopes or of thresholds only: the other parameters stay where they began, or "
    "where the adaptive initialisation put them. Percentile: of the inputs that t_r is set to; the "
    "10th is what the paper's formula says literally. Learning rate: of SReLU's parameters."
)
OTHERS_NOTE = (
    f"Leaky ReLU: with a slope of {REUSED_SLOPE}, which a frozen SReLU is. Reused: such a network "
    f"when it is finished, {REUSED_EPOCHS} more epochs as SReLU, adapted first, or as it is. "
    f"Longer ReLU: for {LONGER} times SReLU's epochs, which is more than its time. Published "
    f"length: {LENGTHS['published']['cifar10']} epochs, where SReLU has "
    f"{LENGTHS['short']['cifar10']}."
)


def ablation_tables(results: PaperResults) -> list[Grid]:
    """Both tables of pairs: decisions of SReLU on CIFAR-10, and what it is compared with else."""
    others = "Further differences, CIFAR-10 if not said otherwise"
    return [
        _pair_table("SReLU with one decision changed, CIFAR-10", CHANGED, CHANGED_NOTE, results),
        _pair_table(others, OTHERS, OTHERS_NOTE, results),
    ]


def changed_entries(results: PaperResults) -> dict[str, Entry]:
    """SReLU with one decision changed, and `CONTROLS`, as far as they finished; by name."""
    named = {pair.words: pair.target for pair in CHANGED} | CONTROLS
    found = {name: results.entry_of(*place) for name, place in named.items()}
    return {name: entry for name, entry in found.items() if entry and entry.summary}


def _pair_table(title: str, pairs: list[RowPair], words: str, results: PaperResults) -> Grid:
    found = [pair.difference(results) for pair in pairs]
    corrected = holm([d.versus.paired.p if d.versus else None for d in found])
    rows = [[d.pair.words, *_numbers(d, p)] for d, p in zip(found, corrected, strict=True)]
    headers = ["", "error", "sd", "difference", "95 % interval", "n", "p (Holm)"]
    statuses = [line for d in found for line in _statuses(d)]
    notes = [PAIR_NOTE, words, *statuses, *_not_run(found, results)]
    return Grid(title, headers, rows, "\n".join(notes))


def _numbers(found: PairDifference, p: float | None) -> list[str]:
    if found.target is None:
        return ["not run", *[NOTHING] * 5]
    difference = [NOTHING] * 4 if found.versus is None else _paired(found.versus, p)
    return [found.target.mean_error, found.target.std_of_errors, *difference]


def _statuses(found: PairDifference) -> Iterator[str]:
    """How many runs diverged and, where none is left, how many were dead."""
    both = [(found.pair.words, found.target)]
    if found.target and not found.versus:
        both.append((f"{found.pair.words}, base", found.baseline))
    for words, entry in both:
        if entry is not None:
            lost = entry.number_of(*((DIVERGED,) if entry.summary else (DEAD, DIVERGED)))
            if lost:
                yield f"{words}: {', '.join(lost)}."


def _not_run(found: list[PairDifference], results: PaperResults) -> Iterator[str]:
    """The blocks that fill what is open, and what they cost."""
    names = {
        name
        for d in found
        if d.versus is None
        for (name, _), entry in ((d.pair.target, d.target), (d.pair.baseline, d.baseline))
        if entry is None or results.missing(select_experiments([name]))
    }
    for name, block in BLOCKS.items():
        everything = with_dependencies(block.experiments)
        missing = [e for e in everything if e.name in names]
        if missing:
            # A block on one data set trains nothing but what is missing here: all of that, seeds of
            # what has fewer included.
            whole = len({e.condition for e in block.experiments}) == 1
            what = name if whole else " ".join(e.name for e in missing)
            cost = results.cost(everything if whole else missing)
            yield f"Not run: `srelu paper run {what}`, {cost}."
