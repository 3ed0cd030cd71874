"""The records that count for each experiment, and what each entry of a table comes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..._text import counted
from ..analysis import comparison, sample_statistics
from ..analysis.comparison import Comparison, Rival
from ..analysis.comparison_tables import format_number
from ..analysis.sample_statistics import SampleSummary
from ..config.recipes import LENGTHS
from ..config.run import Run
from ..records import run_record
from ..records.run_record import Record, seconds_of
from ..records.run_status import DEAD
from ..util import files
from .experiments import (
    BLOCKS,
    MAX_DEAD_SEEDS,
    Experiment,
    experiments_with,
    required_runs,
    select_experiments,
    with_dependencies,
)
from .row_recipes import SYSTEMS, is_short, whole_length


def results_folder() -> Path:
    """The committed records: those of the checkout that this package is in, or ./results."""
    checkout = Path(__file__).parents[4] / "results"
    return checkout if checkout.is_dir() else Path("results")


class Entry(Rival):
    """A row under a condition at a length: what its runs came to."""

    @property
    def run(self) -> Run:
        """One of its runs; they differ in the seed."""
        return self.records[0].run

    @cached_property
    def averaged(self) -> SampleSummary | None:
        """The errors of the averaged weights; None if no run finished."""
        errors = [100 * r.result["ema_test_error"] for r in self.finished if r.result]
        return sample_statistics.summarise_errors(errors) if errors else None

    @property
    def mean_error(self) -> str:
        """The mean of the errors of runs that finished, or the status of all others."""
        return f"{self.summary.mean:.2f}" if self.summary else ", ".join(sorted(self.status_counts))

    @property
    def std_of_errors(self) -> str:
        """The standard deviation of the errors over seeds, if there are enough."""
        return format_number(self.summary and self.summary.std)

    @property
    def averaged_error(self) -> str:
        """The mean of the errors of the averaged weights."""
        return format_number(self.averaged and self.averaged.mean)

    def number_of(self, *statuses: str) -> list[str]:
        """How many runs have each of these statuses, in words, if any have."""
        return [f"{n} {status}" for status in statuses if (n := self.status_counts[status])]


class PaperResults:
    """Records by run, and what they say of each experiment.

    Args:
        records: Any records; of several of one run, the last that has a result counts.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._ended = {r.run.key(): r for r in records if r.result is not None}
        self.by_key = run_record.results(self._ended.values())

    @classmethod
    def committed(cls, folder: Path | None = None) -> PaperResults:
        """Those of the committed records, in ``folder`` or where they are found."""
        root = folder or results_folder()
        found = run_record.find(root) if files.is_folder(root) else []
        if not found:
            raise ValueError(
                f"there are no committed records in {root}: run this in a clone of the project, "
                "or name their folder with --results"
            )
        return cls(found)

    def entries(self, experiment: Experiment) -> dict[str, Entry]:
        """The rows of an experiment that have records: those that count, and those of dead runs."""
        found: dict[str, list[Record]] = {row: [] for row in experiment.rows}
        seeds = experiment.seeds(self.by_key)
        for seed in (*seeds.counted, *seeds.dead):
            for row, run in experiment.runs_of_seed(seed, self.by_key).items():
                record = self._ended.get(run.key())
                if record is None or record.result is None:
                    continue
                if seed in seeds.counted or record.result["status"] == DEAD:
                    found[row].append(record)
        return {row: Entry(row, tuple(own)) for row, own in found.items() if own}

    def entry_of(self, experiment: str, row: str) -> Entry | None:
        """A row of the experiment of that name; None if it has no records."""
        return self.entries(select_experiments([experiment])[-1]).get(row)

    def entry(self, row: str, condition: str, length: str) -> Entry | None:
        """What the runs of a row came to in all its experiments; None if there are none."""
        found = [self.entries(e).get(row) for e in experiments_with(row, condition, length)]
        records = [record for entry in found if entry for record in entry.records]
        records.sort(key=lambda record: record.run.seed)
        return Entry(row, tuple(records)) if records else None

    def records(self, experiments: Iterable[Experiment]) -> list[Record]:
        """The records that experiments count, and those of dead runs, each once."""
        entries = (entry for e in experiments for entry in self.entries(e).values())
        return list({r.run.key(): r for entry in entries for r in entry.records}.values())

    def comparison(self, experiments: Sequence[Experiment]) -> Comparison | None:
        """Experiments of one protocol as one comparison; None if nothing was trained."""
        found = self.records(experiments)
        return comparison.compare(found)[0] if found else None

    def missing(self, experiments: Sequence[Experiment]) -> list[Run]:
        """The runs that are still without a result."""
        return [r for r in required_runs(experiments, self.by_key) if r.key() not in self.by_key]

    def waiting(self, experiments: Sequence[Experiment]) -> int:
        """The number of runs that cannot be decided or begun before others have a result."""
        return sum(map(self._waiting, experiments))

    def _waiting(self, experiment: Experiment) -> int:
        if not experiment.waits(self.by_key):
            return 0
        seeds = experiment.seeds(self.by_key).counted
        runs = [experiment.run(row, s, self.by_key) for s in seeds for row in experiment.rows]
        return sum(run is None or run.key() not in self.by_key for run in runs)

    def places(self) -> list[str]:
        """Where the records come from: hardware and the versions that decide numbers."""
        return comparison.places(self._ended.values())

    def device_seconds(self, experiments: Sequence[Experiment]) -> float:
        """What experiments, and those they depend on, took of a device shared evenly."""
        return sum(map(_device_seconds, self.records(with_dependencies(experiments))))

    def device_hours(self) -> dict[str, float]:
        """What all records together took of each kind of hardware, each run counted once."""
        hours: dict[str, float] = defaultdict(float)
        for record in self._ended.values():
            hours[_hardware([record])] += _device_seconds(record) / 3600
        return hours

    def time_taken(self, experiments: Sequence[Experiment]) -> str:
        """What the runs of experiments took, in words."""
        minutes = max(1, round(self.device_seconds(experiments) / 60))
        return f"took {minutes} min on one {_hardware(self.records(experiments))}"

    def cost(self, experiments: Sequence[Experiment]) -> str:
        """What the missing runs of experiments take, by what like runs took; in words."""
        runs, waiting = self.missing(experiments), self.waiting(experiments)
        dead = {len(e.seeds(self.by_key).dead) for e in with_dependencies(experiments)}
        if not runs and MAX_DEAD_SEEDS in dead:
            return f"given up after {MAX_DEAD_SEEDS} seeds at which a rival was dead at the start"
        if not runs and waiting:
            return f"{counted(waiting, 'run')} given up: none that could decide them has finished"
        epochs = " or ".join(str(n) for n in sorted({run.epochs for run in runs}))
        words = f"{counted(len(runs), 'run')} of {epochs} epochs"
        like = [self._like(run) for run in runs]
        if all(like):
            paces = [run.epochs * _pace(found) for run, found in zip(runs, like, strict=True)]
            where = _hardware([r for found in like for r in found])
            words += f", about {max(1, round(sum(paces) / 60))} min on one {where}"
        return f"{words}, then {waiting} that wait for these" if waiting else words

    def _like(self, run: Run) -> list[Record]:
        """Records of its network, with its activation if there are such."""
        same = [r for r in self._ended.values() if r.run.net == run.net]
        return [r for r in same if r.run.activation == run.activation] or same

    def how_to_run(self, row: str, condition: str) -> str:
        """The command that fills an entry, its cost, and why we did not, if that is known."""
        experiment = experiments_with(row, condition)[0]
        left = experiment in BLOCKS["systems-left"].experiments
        why = "; no time on a GPU was left for it" if left else ""
        return f"`srelu paper run {experiment.name}`, {self.cost([experiment])}{why}"


def _pace(found: Sequence[Record]) -> float:
    """Seconds of a device for an epoch: the median, since dead runs took long for two epochs."""
    return float(np.median([_device_seconds(r) / r.result["epochs"] for r in found if r.result]))


def _hardware(found: Iterable[Record]) -> str:
    return " or ".join(sorted({str(e.get("hardware")) for r in found for e in r.environments}))


def _device_seconds(record: Record) -> float:
    if record.result is None:
        return 0.0
    spent = seconds_of(record.result) + record.result.get("startup_seconds", 0.0)
    return spent / max(environment.get("beside", 1) for environment in record.environments)


def plain_entry(
    row: str,
    condition: str,
    length: str,
    paper: float | None,
    ours: SampleSummary | None,
    note: str,
    part: str = "",
) -> dict[str, Any]:
    """An entry as a plain value, the same for every table; ``part`` says of what of the row."""
    if row in SYSTEMS:
        run = SYSTEMS[row](condition, 1)
        protocol = f"as its authors trained it, {run.dataset}, {epochs_in_words(run)} epochs"
    else:
        protocol = f"faithful, {LENGTHS[length][condition.partition('+')[0]]} epochs"
    numbers = ours and {"mean": ours.mean, "std": ours.std, "n": ours.n, "ci95": ours.interval}
    return {
        "row": row + part,
        "condition": condition,
        "paper": paper,
        "ours": numbers,
        "protocol": protocol,
        "note": note,
    }


def epochs_in_words(run: Run) -> str:
    """The length of a run; of one that is short, that of the whole training too.

    Example:
        >>> epochs_in_words(SYSTEMS["maxout"]("cifar10", 1))
        '60 of 500'
    """
    return f"{run.epochs} of {whole_length(run)}" if is_short(run) else str(run.epochs)
