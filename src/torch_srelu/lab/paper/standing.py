"""Where the contests stand: which of the records there are count, and for which cell of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..._text import counted
from ..analysis import sample_statistics
from ..analysis.comparison import Comparison, Rival, compare, environment_text
from ..analysis.sample_statistics import SampleSummary
from ..config.run import Run
from ..records import run_record
from ..records.run_record import Record, seconds_of
from ..records.run_status import DEAD
from ..util import files
from .blocks import contests
from .contests import GIVE_UP, Contest, Entry, wanted, with_needs


def results_folder() -> Path:
    """The committed records: those of the checkout that this package is in, or ./results."""
    checkout = Path(__file__).parents[4] / "results"
    return checkout if checkout.is_dir() else Path("results")


@dataclass(frozen=True)
class Cell:
    """A row under a condition at a length: what its runs came to."""

    rival: Rival

    @property
    def run(self) -> Run:
        """One of its runs; they differ in the seed."""
        return self.rival.records[0].run

    @cached_property
    def averaged(self) -> SampleSummary | None:
        """The errors of the averaged weights; None if no run finished."""
        errors = [100 * r.result["ema_test_error"] for r in self.rival.finished if r.result]
        return sample_statistics.summarise_errors(errors) if errors else None


class Standing:
    """Records by run, and what the contests make of them.

    Args:
        found: Any records; of several of one run, the last that has a result counts.
    """

    def __init__(self, found: Iterable[Record]) -> None:
        self._ended = {r.run.key(): r for r in found if r.result is not None}
        self.results = run_record.results(self._ended.values())

    @classmethod
    def committed(cls, folder: Path | None = None) -> Standing:
        """That of the committed records, in ``folder`` or where they are found."""
        root = folder or results_folder()
        found = run_record.find(root) if files.is_folder(root) else []
        if not found:
            raise ValueError(
                f"there are no committed records in {root}: run this in a clone of the project, "
                "or name their folder with --results"
            )
        return cls(found)

    def counted(self, contest: Contest) -> list[Record]:
        """The records that a contest counts, and those of its rivals that were dead."""
        return [record for found in self._by_entry(contest).values() for record in found]

    def _by_entry(self, contest: Contest) -> dict[Entry, list[Record]]:
        """The records that count, and the dead, of each rival."""
        found: dict[Entry, list[Record]] = {entry: [] for entry in contest.entries}
        seeds = contest.seeds(self.results)
        for seed in (*seeds.counted, *seeds.dead):
            for entry, run in contest.of_seed(seed, self.results).items():
                record = self._ended.get(run.key())
                if record is None or record.result is None:
                    continue
                if seed in seeds.counted or record.result["status"] == DEAD:
                    found[entry].append(record)
        return found

    def rivals(self, contest: Contest) -> dict[str, Rival]:
        """The rivals of a contest that have records, by row."""
        found = self._by_entry(contest)
        return {entry.row: Rival(entry.row, tuple(own)) for entry, own in found.items() if own}

    def rival(self, contest: str, row: str) -> Rival | None:
        """A rival of the contest of that name; None if it has no records."""
        return self.rivals(contests([contest])[-1]).get(row)

    def comparison(
        self, chosen: Sequence[Contest], baseline: str | None = None
    ) -> Comparison | None:
        """Contests of one protocol as one comparison of what was trained; None if nothing was."""
        found = self._of(chosen)
        return compare(found, baseline)[0] if found else None

    def cell(self, row: str, condition: str, length: str) -> Cell | None:
        """What the runs of a row came to; None if there are none."""
        found = [
            record
            for contest in contests_with(row, condition, length)
            for rival in [self.rivals(contest).get(row)]
            if rival is not None
            for record in rival.records
        ]
        found.sort(key=lambda record: record.run.seed)
        return Cell(Rival(row, tuple(found))) if found else None

    def missing(self, chosen: Sequence[Contest]) -> list[Run]:
        """The runs that are still without a result."""
        return [run for run in wanted(chosen, self.results) if run.key() not in self.results]

    def waiting(self, chosen: Sequence[Contest]) -> int:
        """The number of runs that cannot be decided or begun before others have a result."""
        return sum(map(self._waiting, chosen))

    def places(self) -> list[str]:
        """Where the records come from: hardware and the versions that decide numbers."""
        return sorted(
            {environment_text(e) for record in self._ended.values() for e in record.environments}
        )

    def device_seconds(self, chosen: Sequence[Contest]) -> float:
        """What the runs of contests, and those they need, took of a device shared evenly."""
        return sum(map(_device_seconds, self._of(with_needs(chosen))))

    def device_hours(self) -> dict[str, float]:
        """What all records together took of each kind of hardware, each run counted once."""
        hours: dict[str, float] = {}
        for record in self._ended.values():
            where = _hardware([record])
            hours[where] = hours.get(where, 0.0) + _device_seconds(record) / 3600
        return hours

    def _of(self, chosen: Sequence[Contest]) -> list[Record]:
        found = {r.run.key(): r for contest in chosen for r in self.counted(contest)}
        return list(found.values())

    def spent(self, chosen: Sequence[Contest]) -> str:
        """What the runs of contests took, in words."""
        minutes = max(1, round(self.device_seconds(chosen) / 60))
        return f"took {minutes} min on one {_hardware(self._of(chosen))}"

    def cost(self, chosen: Sequence[Contest]) -> str:
        """What the missing runs of contests take, by what like runs took; in words."""
        runs = self.missing(chosen)
        dead = {len(contest.seeds(self.results).dead) for contest in with_needs(chosen)}
        if not runs and GIVE_UP in dead:
            return f"given up after {GIVE_UP} seeds at which a rival was dead at the start"
        waiting = self.waiting(chosen)
        if not runs and waiting:
            return f"{counted(waiting, 'run')} given up: none that could decide them has finished"
        epochs = " or ".join(str(n) for n in sorted({run.epochs for run in runs}))
        words = f"{counted(len(runs), 'run')} of {epochs} epochs"
        like = [self._like(run) for run in runs]
        if all(like):
            paces = [run.epochs * _pace(found) for run, found in zip(runs, like, strict=True)]
            minutes = sum(paces) / 60
            where = _hardware([r for found in like for r in found])
            words += f", about {max(1, round(minutes))} min on one {where}"
        return f"{words}, then {waiting} that wait for these" if waiting else words

    def _like(self, run: Run) -> list[Record]:
        """Records of its network, with its activation if there are such."""
        same = [r for r in self._ended.values() if r.run.net == run.net]
        return [r for r in same if r.run.activation == run.activation] or same

    def _waiting(self, contest: Contest) -> int:
        """The runs without a result that wait for the results of others."""
        if not contest.waits(self.results):
            return 0
        seeds = contest.seeds(self.results).counted
        runs = [entry.run(seed, self.results) for seed in seeds for entry in contest.entries]
        return sum(run is None or run.key() not in self.results for run in runs)


def contests_with(row: str, condition: str, length: str | None = None) -> list[Contest]:
    """The contests that decide a row's number under a condition, at a length or at any."""
    return [
        contest
        for contest in contests()
        if contest.condition == condition
        and length in (None, contest.length)
        and any(entry.row == row and not entry.base for entry in contest.entries)
    ]


def _pace(found: Sequence[Record]) -> float:
    """Seconds of a device for an epoch: the median, since dead runs took long for two epochs."""
    return float(np.median([_device_seconds(r) / r.result["epochs"] for r in found if r.result]))


def _hardware(found: Iterable[Record]) -> str:
    return " or ".join(sorted({str(e.get("hardware")) for r in found for e in r.environments}))


def _device_seconds(record: Record) -> float:
    if record.result is None:
        return 0.0
    spent = seconds_of(record.result) + record.result.get("startup_seconds", 0.0)
    return spent / max(e.get("beside", 1) for e in record.environments)
