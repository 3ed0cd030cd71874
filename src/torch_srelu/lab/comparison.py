"""Rivals side by side: which runs belong together, and what they say against a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from . import statistics
from .choices import check_choice
from .records import Record
from .statistics import Interval, Paired, Pooled, Summary

# What makes a rival. Everything else, but for the seed, is the protocol that all rivals share.
RIVAL_FIELDS = ("activation", "options", "freeze", "quantile", "scope", "lr_scale", "fixed")
FINISHED, DEAD, DIVERGED, UNFINISHED = "finished", "dead", "diverged", "unfinished"


@dataclass(frozen=True)
class Rival:
    """All runs that differ in the seed alone."""

    name: str
    records: tuple[Record, ...]  # by seed

    @cached_property
    def errors(self) -> dict[int, float]:
        """Test error in percent of the last epoch by seed, of the runs that finished."""
        return {
            r.run.seed: 100 * r.result["test_error"]
            for r in self.records
            if r.result and r.result["status"] == FINISHED
        }

    @cached_property
    def fates(self) -> Counter[str]:
        """How many runs finished, died, diverged or have no result yet."""
        return Counter(r.result["status"] if r.result else UNFINISHED for r in self.records)

    @cached_property
    def summary(self) -> Summary | None:
        """Mean, spread and interval of the errors; None if no run finished."""
        return statistics.summarise(list(self.errors.values())) if self.errors else None

    @cached_property
    def seconds(self) -> float | None:
        """Mean training time of a finished run."""
        times = [
            r.result["seconds"] for r in self.records if r.result and r.run.seed in self.errors
        ]
        return float(np.mean(times)) if times else None

    def wrong(self, seeds: Sequence[int]) -> np.ndarray | None:
        """Which test images were misclassified, (seeds, images); None if that was not kept."""
        records = {r.run.seed: r for r in self.records if (r.folder / "predictions.gz").exists()}
        if not records.keys() >= set(seeds):
            return None
        return np.stack([(records[s].predictions() != records[s].labels()).numpy() for s in seeds])


@dataclass(frozen=True)
class Versus:
    """A rival's error minus the baseline's, in points of percent.

    Attributes:
        paired: Over the seeds that both finished.
        p: The paired test's p-value after Holm's correction over all rivals.
        pooled: Interval of the difference from the spread within all cells together.
        images: Bootstrap interval over the choice of test images, the seeds being given.
    """

    paired: Paired
    p: float | None
    pooled: Interval | None
    images: Interval | None


@dataclass(frozen=True)
class Comparison:
    """Rivals under one protocol, the baseline among them."""

    protocol: dict[str, Any]
    rivals: tuple[Rival, ...]
    baseline: Rival

    @property
    def title(self) -> str:
        """What was trained, in words."""
        p = self.protocol
        return f"{p['net']} on {p['dataset']}, {p['epochs']} epochs"

    @cached_property
    def pooled(self) -> Pooled | None:
        """The spread of errors within cells, from all rivals together."""
        return statistics.pool([list(r.errors.values()) for r in self.rivals])

    @cached_property
    def versus(self) -> dict[str, Versus]:
        """Each rival against the baseline, by name; rivals without a common seed are absent."""
        tests = {
            rival.name: (rival, seeds, self._paired(rival, seeds))
            for rival in self.rivals
            if rival is not self.baseline and (seeds := self._common_seeds(rival))
        }
        corrected = statistics.holm([paired.p for _, _, paired in tests.values()])
        return {
            name: Versus(paired, p, self._pooled_interval(rival), self._images(rival, seeds))
            for (name, (rival, seeds, paired)), p in zip(tests.items(), corrected, strict=True)
        }

    def _common_seeds(self, rival: Rival) -> list[int]:
        return sorted(rival.errors.keys() & self.baseline.errors.keys())

    def _paired(self, rival: Rival, seeds: list[int]) -> Paired:
        return statistics.paired(
            [rival.errors[s] for s in seeds], [self.baseline.errors[s] for s in seeds]
        )

    def _pooled_interval(self, rival: Rival) -> Interval | None:
        ours, base = rival.summary, self.baseline.summary
        if self.pooled is None or ours is None or base is None:
            return None
        return self.pooled.interval(ours.mean - base.mean, ours.n, base.n)

    def _images(self, rival: Rival, seeds: list[int]) -> Interval | None:
        ours, base = rival.wrong(seeds), self.baseline.wrong(seeds)
        if ours is None or base is None or ours.shape != base.shape:
            return None
        low, high = statistics.bootstrap(ours, base)
        return 100 * low, 100 * high


def compare(records: Iterable[Record], baseline: str | None = None) -> list[Comparison]:
    """Sorts records into comparisons, one for each protocol, in the order they were begun.

    Args:
        records: Any records; of several with the same `Run`, the last that has a result counts.
        baseline: Name of the rival that the others are measured against; relu if it took part,
            else the first rival, unless told.
    """
    protocols: dict[str, list[Record]] = {}
    for record in _newest(records):
        protocols.setdefault(repr(_protocol(record)), []).append(record)
    return [_comparison(group, baseline) for group in protocols.values()]


def _newest(records: Iterable[Record]) -> list[Record]:
    chosen: dict[str, Record] = {}
    for record in records:
        key = record.run.key()
        if record.result is not None or key not in chosen or chosen[key].result is None:
            chosen[key] = record
    return list(chosen.values())


def _protocol(record: Record) -> dict[str, Any]:
    fields = record.run.to_dict()
    return {name: v for name, v in fields.items() if name not in (*RIVAL_FIELDS, "seed")}


def _comparison(records: list[Record], baseline: str | None) -> Comparison:
    cells: dict[str, list[Record]] = {}
    for record in records:
        cells.setdefault(repr(_traits(record)), []).append(record)
    names = _names([_traits(group[0]) for group in cells.values()])
    rivals = tuple(
        Rival(name, tuple(sorted(group, key=lambda r: r.run.seed)))
        for name, group in zip(names, cells.values(), strict=True)
    )
    if baseline is None:
        baseline = "relu" if "relu" in names else names[0]
    check_choice("baseline", baseline, names)
    return Comparison(_protocol(records[0]), rivals, rivals[names.index(baseline)])


def _traits(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.run.to_dict().items() if name in RIVAL_FIELDS}


def _names(cells: list[dict[str, Any]]) -> list[str]:
    """The activation's name, and whatever tells apart cells that share it."""
    flat = [{**cell, **cell["options"], "options": None} for cell in cells]
    names = []
    for cell in flat:
        like = [other for other in flat if other["activation"] == cell["activation"]]
        differing = [k for k in cell if any(other.get(k) != cell[k] for other in like)]
        details = ", ".join(f"{k}={cell[k]}" for k in differing)
        names.append(f"{cell['activation']} ({details})" if details else cell["activation"])
    return names
