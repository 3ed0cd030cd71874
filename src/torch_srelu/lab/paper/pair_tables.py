"""What the gain is made of: SReLU with one decision changed or reused, ReLU trained for longer.

Each line is a row against another one, over the seeds that both finished: read from pairs.csv.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..analysis.comparison import BaselineDifference, Comparison
from ..analysis.comparison_tables import NOTHING, TextTable
from ..analysis.sample_statistics import holm
from ..config.recipes import LENGTHS
from ..records.run_status import DEAD, DIVERGED
from .difference_tables import paired_numbers
from .experiments import BLOCKS, select_experiments, with_dependencies
from .published import read_csv
from .results import Entry, PaperResults
from .rows import LONGER, REUSED_EPOCHS, REUSED_SLOPE


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
        versus = Comparison("", {}, (baseline, target), baseline).differences.get(target.name)
        return PairDifference(self, target, baseline, versus)


class PairDifference(NamedTuple):
    """What the records say of a pair; None where they say nothing."""

    pair: RowPair
    target: Entry | None
    baseline: Entry | None
    versus: BaselineDifference | None


_PAIRS = read_csv("pairs.csv")


def _pairs(table: str) -> list[RowPair]:
    return [
        RowPair(
            line["words"],
            (line["experiment"], line["row"]),
            (line["baseline_experiment"], line["baseline_row"]),
        )
        for line in _PAIRS
        if line["table"] == table
    ]


CHANGED, OTHERS = _pairs("changed"), _pairs("others")
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


def make_tables(results: PaperResults) -> list[TextTable]:
    """Both tables of pairs: decisions of SReLU on CIFAR-10, and what it is compared with else."""
    others = "Further differences, CIFAR-10 if not said otherwise"
    return [
        _pair_table("SReLU with one decision changed, CIFAR-10", CHANGED, CHANGED_NOTE, results),
        _pair_table(others, OTHERS, OTHERS_NOTE, results),
    ]


def changed_entries(results: PaperResults) -> dict[str, Entry]:
    """SReLU with one decision changed, and its controls, as far as they finished; by name."""
    pairs = (*CHANGED, *_pairs("controls"))
    found = {pair.words: results.entry_of(*pair.target) for pair in pairs}
    return {name: entry for name, entry in found.items() if entry and entry.summary}


def _pair_table(title: str, pairs: list[RowPair], words: str, results: PaperResults) -> TextTable:
    found = [pair.difference(results) for pair in pairs]
    corrected = holm([d.versus.paired.p if d.versus else None for d in found])
    rows = [[d.pair.words, *_numbers(d, p)] for d, p in zip(found, corrected, strict=True)]
    headers = ["", "error", "sd", "difference", "95 % interval", "n", "p (Holm)"]
    statuses = [line for d in found for line in _statuses(d)]
    notes = [PAIR_NOTE, words, *statuses, *_not_run(found, results)]
    return TextTable(title, headers, rows, "\n".join(notes))


def _numbers(found: PairDifference, p: float | None) -> list[str]:
    if found.target is None:
        return ["not run", *[NOTHING] * 5]
    difference = [NOTHING] * 4 if found.versus is None else paired_numbers(found.versus, p)
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
