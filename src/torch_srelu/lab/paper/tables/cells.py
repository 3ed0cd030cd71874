"""What all cells of our tables share: as a plain value, and how one that is empty is filled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...analysis.comparison import Rival
from ...analysis.sample_statistics import SampleSummary
from ...config.recipes import LENGTHS
from ...config.run import Run
from ...records.run_status import DEAD, DIVERGED
from ..standing import Standing, contests_with
from ..system_blocks import LEFT, SYSTEM_BLOCKS
from ..systems import SYSTEMS, is_short, whole_length


def entry(
    row: str,
    condition: str,
    paper: float | None,
    ours: SampleSummary | None,
    protocol: str,
    note: str,
) -> dict[str, Any]:
    """A cell as a plain value, the same for every table."""
    numbers = ours and {
        "mean": ours.mean,
        "std": ours.std,
        "n": ours.n,
        "ci95": list(ours.interval) if ours.interval else None,
    }
    return {
        "row": row,
        "condition": condition,
        "paper": paper,
        "ours": numbers,
        "protocol": protocol,
        "note": note,
    }


def mean_error(rival: Rival) -> str:
    """The mean of the errors of those that finished, or what became of all runs."""
    if rival.summary is None:
        return ", ".join(sorted(rival.status_counts))
    return f"{rival.summary.mean:.2f}"


def fates_in_words(rival: Rival, fates: Iterable[str] = (DEAD, DIVERGED)) -> list[str]:
    """How many runs met each of these fates, if any did."""
    return [f"{rival.status_counts[fate]} {fate}" for fate in fates if rival.status_counts[fate]]


def how_to_run(row: str, condition: str, standing: Standing) -> str:
    """The command that runs a cell, its cost, and why we did not, if that is known."""
    contest = contests_with(row, condition)[0]
    why = "; no time on a GPU was left for it" if contest in SYSTEM_BLOCKS[LEFT].contests else ""
    return f"`srelu paper run {contest.name}`, {standing.cost([contest])}{why}"


def epochs(run: Run) -> str:
    """The length of a run; of one that is short, that of the whole training too.

    Example:
        >>> epochs(SYSTEMS["maxout"]("cifar10", 1)), epochs(SYSTEMS["maxout"]("mnist", 1))
        ('60 of 500', '100')
    """
    return f"{run.epochs} of {whole_length(run)}" if is_short(run) else str(run.epochs)


def protocol(row: str, condition: str, length: str) -> str:
    """The name of the protocol of a row at a length."""
    if row not in SYSTEMS:
        return f"faithful, {LENGTHS[length][condition.partition('+')[0]]} epochs"
    run = SYSTEMS[row](condition, 1)
    return f"as its authors trained it, {run.dataset}, {epochs(run)} epochs"
