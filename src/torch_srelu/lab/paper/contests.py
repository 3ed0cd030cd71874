"""Who is compared with whom, over which seeds: the plan that runs and tables share.

A contest is decided by results alone. Its seeds are tried in order, those of the contest that it is
compared with first; one at which a rival was dead
at the start counts for none of them, and the next takes its place. A rival that diverges later
keeps its seed: that is a result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..config.run import Run
from ..records.run_record import Results
from ..records.run_status import DEAD

OWN = "own"  # the length of a system that has its own, not that of the protocol
GIVE_UP = 5  # dead seeds, after which a contest is not pursued: the protocol itself is at fault


@dataclass(frozen=True)
class Entry:
    """A rival.

    Attributes:
        row: The name of its row.
        run: Its run for a seed, given the results there are; None where a decision of the run, such
            as a slope that is chosen on validation data, still waits for results, and where the run
            that it would begin with has come to nothing.
        base: Whether it is here for the others to be compared with: which of its seeds count in
            tables is decided by another contest.
    """

    row: str
    run: Callable[[int, Results], Run | None]
    base: bool = False


class Seeds(NamedTuple):
    """The seeds of a contest so far: those that count, and those at which a rival was dead."""

    counted: tuple[int, ...]
    dead: tuple[int, ...]


@dataclass(frozen=True)
class Contest:
    """Rivals under one condition.

    Attributes:
        name: What the user types.
        condition: One of the protocol's conditions.
        length: One of its lengths, or `OWN`.
        entries: The rivals.
        count: How many seeds are to count.
        after: A contest whose seeds come first: this one begins behind them.
        like: A contest whose seeds this one tries first: rivals of both can be paired, and what
            they share is trained once.
        needs: A contest without whose results the runs of this one cannot be decided or begun.
    """

    name: str
    condition: str
    length: str
    entries: tuple[Entry, ...]
    count: int
    after: Contest | None = None
    like: Contest | None = None
    needs: Contest | None = None

    def seeds(self, results: Results) -> Seeds:
        """The seeds that count, trained or not yet, and those that do not."""
        counted: list[int] = []
        dead: list[int] = []
        for seed in self._tried(results):
            if len(counted) == self.count or len(dead) == GIVE_UP:
                break
            fates = [results.get(run.key(), {}) for run in self.of_seed(seed, results).values()]
            (dead if any(fate.get("status") == DEAD for fate in fates) else counted).append(seed)
        return Seeds(tuple(counted), tuple(dead))

    def _tried(self, results: Results) -> Iterator[int]:
        """All seeds, in the order in which they are tried."""
        other = self.like or self.after
        counted, dead = other.seeds(results) if other else ((), ())
        further = itertools.count(1 + max((*counted, *dead), default=0))
        return itertools.chain(counted, further) if self.like else further

    def of_seed(self, seed: int, results: Results) -> dict[Entry, Run]:
        """The rivals' runs of a seed; empty while one of them waits for results of others."""
        runs = {entry: run for entry in self.entries if (run := entry.run(seed, results))}
        return runs if len(runs) == len(self.entries) else {}

    def runs(self, results: Results) -> list[Run]:
        """The runs that count, all rivals of a seed before the next; empty if it was given up."""
        counted, dead = self.seeds(results)
        if len(dead) == GIVE_UP:
            return []
        return [run for seed in counted for run in self.of_seed(seed, results).values()]

    def waits(self, results: Results) -> bool:
        """Whether the results of other runs are needed before this can be run."""
        return not any(self.of_seed(seed, results) for seed in self.seeds(results).counted)


class Block(NamedTuple):
    """Contests that are run together, and what for, in words."""

    words: str
    contests: tuple[Contest, ...]


def with_needs(contests: Iterable[Contest]) -> list[Contest]:
    """The contests, each after the one that it needs, and each once."""
    chain: dict[Contest, None] = {}
    for contest in contests:
        if contest.needs is not None:
            chain |= dict.fromkeys(with_needs([contest.needs]))
        chain[contest] = None
    return list(chain)


def wanted(contests: Iterable[Contest], results: Results) -> list[Run]:
    """The runs of several contests and of those that they need, each once, in order."""
    runs = [run for contest in with_needs(contests) for run in contest.runs(results)]
    return list({run.key(): run for run in runs}.values())
