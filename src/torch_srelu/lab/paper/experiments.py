"""The experiments of the reproduction: experiments.csv, a line each, in the blocks of blocks.csv.

Results alone decide which runs an experiment has. Its seeds are tried in order, those of the
experiment that it is compared with first; one at which a row was dead at the start counts for none
of its rows, and the next takes its place. A row that diverges later keeps its seed: that is a
result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..config.run import Run
from ..records.run_record import Results
from ..records.run_status import DEAD, FINISHED
from ..util.choices import check_choice
from .published import read_csv
from .row_recipes import ROWS, SLOPES, SYSTEMS

OWN = "own"  # the length of a system that has its own, not that of the protocol
MAX_DEAD_SEEDS = 5  # after these an experiment is given up: the protocol itself is at fault
REHEARSAL = "rehearsal"


class Seeds(NamedTuple):
    """The seeds of an experiment so far: those that count, and those at which a row was dead."""

    counted: tuple[int, ...]
    dead: tuple[int, ...]


@dataclass(frozen=True)
class Experiment:
    """Rows that are trained under one condition over the same seeds.

    Attributes:
        name: What the user types.
        condition: One of the protocol's conditions.
        rows: Names of `ROWS` or `SYSTEMS`.
        num_seeds: How many seeds are to count.
        length: One of the protocol's lengths, or `OWN`.
        block: The block that it belongs to, unless it is only depended on.
        baseline: A row that is here for the others to be compared with: which of its seeds count
            in tables is decided by another experiment.
        after: An experiment whose seeds come first: this one begins behind them.
        seeds_of: An experiment whose seeds this one tries first: rows of both can be paired, and
            what they share is trained once.
        depends_on: An experiment without whose results the runs of this one cannot be decided or
            begun.
    """

    name: str
    condition: str
    rows: tuple[str, ...]
    num_seeds: int
    length: str = "short"
    block: str | None = None
    baseline: str | None = None
    after: Experiment | None = None
    seeds_of: Experiment | None = None
    depends_on: Experiment | None = None

    def seeds(self, results: Results) -> Seeds:
        """The seeds that count, trained or not yet, and those that do not."""
        counted: list[int] = []
        dead: list[int] = []
        for seed in self._tried(results):
            if len(counted) == self.num_seeds or len(dead) == MAX_DEAD_SEEDS:
                break
            runs = self.runs_of_seed(seed, results).values()
            statuses = {results.get(run.key(), {}).get("status") for run in runs}
            (dead if DEAD in statuses else counted).append(seed)
        return Seeds(tuple(counted), tuple(dead))

    def _tried(self, results: Results) -> Iterator[int]:
        """All seeds, in the order in which they are tried."""
        other = self.seeds_of or self.after
        counted, dead = other.seeds(results) if other else ((), ())
        further = itertools.count(1 + max((*counted, *dead), default=0))
        return itertools.chain(counted, further) if self.seeds_of else further

    def run(self, row: str, seed: int, results: Results) -> Run | None:
        """The run of a row; None while it waits for results of others, and if they came to none."""
        decisions = _decided(row, self.condition, seed, results)
        if decisions is None:
            return None
        make = SYSTEMS.get(row) or ROWS[row]
        return make(self.condition, seed, self.length, **decisions)

    def runs_of_seed(self, seed: int, results: Results) -> dict[str, Run]:
        """The runs of a seed by row; empty while one of them waits for results of others."""
        runs = {row: run for row in self.rows if (run := self.run(row, seed, results))}
        return runs if len(runs) == len(self.rows) else {}

    def runs(self, results: Results) -> list[Run]:
        """The runs that count, all rows of a seed before the next; empty if it was given up."""
        counted, dead = self.seeds(results)
        if len(dead) == MAX_DEAD_SEEDS:
            return []
        return [run for seed in counted for run in self.runs_of_seed(seed, results).values()]

    def waits(self, results: Results) -> bool:
        """Whether the results of other runs are needed before this can be run."""
        return not any(self.runs_of_seed(seed, results) for seed in self.seeds(results).counted)


def _decided(row: str, condition: str, seed: int, results: Results) -> dict[str, Any] | None:
    """The fields of a row's run that results of other runs decide; None while they do not."""
    if row == "nin+lrelu":
        slope = chosen_slope(condition, results)
        return None if slope is None else {"options": {"slope": slope}}
    if row in ("reuse:lrelu", "reuse:srelu"):
        before = results.get(ROWS["reuse:before"](condition, seed).key())
        if before is not None and before["status"] != FINISHED:
            return None  # there are no weights to begin with
    return {}


def chosen_slope(condition: str, results: Results) -> float | None:
    """LReLU's slope with the lowest validation error; None before all have been tried.

    At the first seed at which none was dead, as in the experiment of the slopes. With flips it is
    the one chosen without.
    """
    plain = condition.partition("+")[0]
    for seed in range(1, MAX_DEAD_SEEDS + 1):
        ended = {s: results.get(ROWS[f"lrelu:{s}"](plain, seed).key(), {}) for s in SLOPES}
        statuses = {s: result.get("status") for s, result in ended.items()}
        if DEAD in statuses.values():
            continue
        errors = {s: ended[s]["val_error"] for s in SLOPES if statuses[s] == FINISHED}
        return min(errors, key=lambda s: errors[s]) if errors and all(statuses.values()) else None
    return None


def _read_experiments() -> dict[str, Experiment]:
    found: dict[str, Experiment] = {}
    for line in read_csv("experiments.csv"):
        fields: dict[str, Any] = {name: text or None for name, text in line.items()}
        fields |= {"rows": tuple(line["rows"].split()), "num_seeds": int(line["num_seeds"])}
        fields |= {name: found[line[name]] for name in _OTHERS if line[name]}
        found[line["name"]] = Experiment(**fields)
    return found


class ExperimentBlock(NamedTuple):
    """Experiments that are run together, and what for, in words."""

    words: str
    experiments: tuple[Experiment, ...]


_OTHERS = ("after", "seeds_of", "depends_on")
EXPERIMENTS = _read_experiments()
BLOCKS: dict[str, ExperimentBlock] = {
    line["block"]: ExperimentBlock(
        line["words"], tuple(e for e in EXPERIMENTS.values() if e.block == line["block"])
    )
    for line in read_csv("blocks.csv")
}


def select_experiments(names: Sequence[str] | None = None) -> list[Experiment]:
    """The experiments of blocks, or single ones, by name, each after the one that it depends on.

    If none is named, all that count.

    Example:
        >>> [experiment.name for experiment in select_experiments(["headline"])]
        ['headline-cifar10', 'headline-cifar100']
    """
    known = {name: (experiment,) for name, experiment in EXPERIMENTS.items()}
    known |= {name: block.experiments for name, block in BLOCKS.items()}
    for name in names or ():
        check_choice("block", name, known, listed_by="srelu paper run")
    counting = [name for name in BLOCKS if name != REHEARSAL]
    return with_dependencies(e for name in names or counting for e in known[name])


def experiments_with(row: str, condition: str, length: str | None = None) -> list[Experiment]:
    """The experiments that decide a row's number under a condition, at a length or at any."""
    return [
        e
        for e in select_experiments()
        if e.condition == condition
        and length in (None, e.length)
        and row in e.rows
        and row != e.baseline
    ]


def with_dependencies(experiments: Iterable[Experiment]) -> list[Experiment]:
    """The experiments, each after the one that it depends on, and each once."""
    chain: dict[Experiment, None] = {}
    for experiment in experiments:
        if experiment.depends_on is not None:
            chain |= dict.fromkeys(with_dependencies([experiment.depends_on]))
        chain[experiment] = None
    return list(chain)


def required_runs(experiments: Iterable[Experiment], results: Results) -> list[Run]:
    """The runs of experiments and of those that they depend on, each once, in order."""
    runs = [run for e in with_dependencies(experiments) for run in e.runs(results)]
    return list({run.key(): run for run in runs}.values())
