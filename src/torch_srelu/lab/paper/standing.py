"""Where the contests stand: which of the records there are count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import records
from ..comparison import Comparison, compare
from ..fates import DEAD
from ..records import Record
from .contests import Contest, wanted


def results_folder() -> Path:
    """The committed records: those of the checkout that this package is in, or ./results."""
    checkout = Path(__file__).parents[4] / "results"
    return checkout if checkout.is_dir() else Path("results")


class Archive:
    """Records by run, the last that has a result of each.

    Args:
        found: Any records.
    """

    def __init__(self, found: Sequence[Record]) -> None:
        self.results = records.results(found)
        self._ended = {r.run.key(): r for r in found if r.result is not None}

    def counted(self, contest: Contest) -> list[Record]:
        """The records that a contest counts, and those of its rivals that were dead."""
        seeds = contest.seeds(self.results)
        keys = [entry.run(seed).key() for seed in seeds.counted for entry in contest.entries]
        chosen = [self._ended[key] for key in keys if key in self._ended]
        died = (entry.run(seed).key() for seed in seeds.dead for entry in contest.entries)
        return chosen + [
            self._ended[key] for key in died if self.results.get(key, {}).get("status") == DEAD
        ]

    def comparison(self, contest: Contest, baseline: str | None = None) -> Comparison | None:
        """The contest as a comparison of what has been trained; None if that is nothing."""
        chosen = self.counted(contest)
        return compare(chosen, baseline)[0] if chosen else None

    def missing(self, contests: Sequence[Contest]) -> int:
        """How many runs are still without a result."""
        return sum(run.key() not in self.results for run in wanted(contests, self.results))
