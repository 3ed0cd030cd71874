"""What the gain is made of: SReLU with one decision changed or reused, ReLU trained for longer.

Each line is a row against another one, over the seeds that both finished: read from pairs.csv.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..analysis.comparison import BaselineDifference, Comparison
from ..analysis.comparison_tables import NOTHING, TextTable, paired_numbers
from ..analysis.sample_statistics import holm
from ..config.recipes import LENGTHS
from ..records.run_status import DEAD, DIVERGED
from .experiments import BLOCKS, select_experiments, with_dependencies
from .published import NOTES, read_csv
from .results import Entry, PaperResults
from .row_recipes import LONGER, REUSED_EPOCHS, REUSED_SLOPE


class RowPair(NamedTuple):
    """A row against another, over the seeds that both finished: each an experiment and a row."""

    words: str
    target: tuple[str, str]
    baseline: tuple[str, str]

    def difference(self, results: PaperResults) -> PairDifference:
        """Both as far as they have records, and the difference if both have finished."""
        target, baseline = results.entry_of(*self.target), results.entry_of(*self.baseline)
        versus = None
        if target is not None and baseline is not None:
            versus = Comparison("", {}, (baseline, target), baseline).differences.get(target.name)
        return PairDifference(self, target, baseline, versus)


class PairDifference(NamedTuple):
    """What the records say of a pair; None where they say nothing."""

    pair: RowPair
    target: Entry | None
    baseline: Entry | None
    versus: BaselineDifference | None


def _pairs(table: str) -> list[RowPair]:
    lines = (line.values() for line in read_csv("pairs.csv") if line["table"] == table)
    return [RowPair(words, (name, row), (other, its)) for _, words, name, row, other, its in lines]


CHANGED, OTHERS = _pairs("changed"), _pairs("others")
OTHERS_NOTE = NOTES["others"].format(
    slope=REUSED_SLOPE,
    epochs=REUSED_EPOCHS,
    longer=LONGER,
    **{name: epochs["cifar10"] for name, epochs in LENGTHS.items()},
)


def make_tables(results: PaperResults) -> list[TextTable]:
    """Both tables of pairs: decisions of SReLU on CIFAR-10, and what it is compared with else."""
    changed = "SReLU with one decision changed, CIFAR-10"
    others = "Further differences, CIFAR-10 if not said otherwise"
    return [
        _pair_table(changed, CHANGED, NOTES["changed"], results),
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
    notes = [NOTES["pairs"], words, *statuses, *_not_run(found, results)]
    return TextTable(title, headers, rows, "\n".join(notes))


def _numbers(found: PairDifference, p: float | None) -> list[str]:
    if found.target is None:
        return ["not run", *[NOTHING] * 5]
    difference = [NOTHING] * 4 if found.versus is None else paired_numbers(found.versus.paired, p)
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
