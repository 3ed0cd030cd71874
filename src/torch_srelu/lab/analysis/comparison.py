"""Comparisons of runs: rivals under one protocol, and their differences to a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..._text import counted
from ..config.run import ADAPTIVE_FIELDS, SRELU_FIELDS, Run
from ..records.run_record import Record, seconds_of
from ..records.run_status import FINISHED
from ..util.choices import check_choice
from . import sample_statistics
from .sample_statistics import Interval, PairedDifference, PooledDeviation, SampleSummary

# What rivals differ in. Everything else, but for the seed, is the protocol that they share.
OWN_FIELDS = (*ADAPTIVE_FIELDS, *SRELU_FIELDS)
RIVAL_FIELDS = ("activation", "options", *OWN_FIELDS)


@dataclass(frozen=True)
class Rival:
    """All runs that differ in the seed alone."""

    name: str
    records: tuple[Record, ...]  # by seed

    @cached_property
    def finished(self) -> list[Record]:
        """The records that count: neither dead nor diverged nor still without a result."""
        return [record for record in self.records if record.status == FINISHED]

    @cached_property
    def errors(self) -> dict[int, float]:
        """Test error in percent of the last epoch by seed, of the runs that finished."""
        return {r.run.seed: 100 * r.result["test_error"] for r in self.finished if r.result}

    @cached_property
    def status_counts(self) -> Counter[str]:
        """How many runs have each status of `run_status`."""
        return Counter(record.status for record in self.records)

    @cached_property
    def summary(self) -> SampleSummary | None:
        """Mean, standard deviation and interval of the errors; None if no run finished."""
        errors = list(self.errors.values())
        return sample_statistics.summarise_errors(errors) if errors else None

    @cached_property
    def seconds(self) -> float | None:
        """Mean training time of a finished run."""
        times = [seconds_of(r.result) for r in self.finished if r.result]
        return float(np.mean(times)) if times else None

    def wrong(self, seeds: Sequence[int]) -> np.ndarray | None:
        """Which test images were misclassified, (seeds, images).

        None if a record lacks it, or if the seeds were tested on different numbers of images.
        """
        records = {r.run.seed: r for r in self.records if r.tested}
        if not records.keys() >= set(seeds):
            return None
        wrong = [records[s].wrong().numpy() for s in seeds]
        return np.stack(wrong) if len({len(images) for images in wrong}) == 1 else None


class BaselineDifference(NamedTuple):
    """A rival's error minus the baseline's, in points of percent.

    Attributes:
        paired: Over the seeds that both finished.
        p: The paired test's p-value after Holm's correction over all rivals.
        pooled: Interval of the difference from the deviation within all rivals together.
        images: Bootstrap interval over the choice of test images, the seeds being given.
    """

    paired: PairedDifference
    p: float | None
    pooled: Interval | None
    images: Interval | None


@dataclass(frozen=True)
class Comparison:
    """Rivals under one protocol, the baseline among them.

    Attributes:
        title: What was trained, in words.
        protocol: The decisions that all rivals share.
        rivals: In the order in which they were begun.
        baseline: The one that the others are measured against.
    """

    title: str
    protocol: dict[str, Any]
    rivals: tuple[Rival, ...]
    baseline: Rival

    @cached_property
    def records(self) -> list[Record]:
        """The records of all rivals."""
        return [record for rival in self.rivals for record in rival.records]

    @cached_property
    def pooled(self) -> PooledDeviation | None:
        """The standard deviation of errors within rivals, from all of them together."""
        return sample_statistics.pool([list(r.errors.values()) for r in self.rivals])

    @cached_property
    def differences(self) -> dict[str, BaselineDifference]:
        """Each rival minus the baseline, by name; rivals without a common seed are absent."""
        found = {
            rival.name: self._difference(rival, seeds)
            for rival in self.rivals
            if rival is not self.baseline
            and (seeds := sorted(rival.errors.keys() & self.baseline.errors.keys()))
        }
        corrected = sample_statistics.holm([difference.p for difference in found.values()])
        return {n: d._replace(p=p) for (n, d), p in zip(found.items(), corrected, strict=True)}

    def _difference(self, rival: Rival, seeds: list[int]) -> BaselineDifference:
        """With a p-value that is not yet corrected."""
        ours, base = ([r.errors[seed] for seed in seeds] for r in (rival, self.baseline))
        paired = sample_statistics.paired(ours, base)
        intervals = self._pooled_interval(rival), self._images_interval(rival, seeds)
        return BaselineDifference(paired, paired.p, *intervals)

    def _pooled_interval(self, rival: Rival) -> Interval | None:
        ours, base = rival.summary, self.baseline.summary
        if self.pooled is None or ours is None or base is None:
            return None
        return self.pooled.interval(ours.mean - base.mean, ours.n, base.n)

    def _images_interval(self, rival: Rival, seeds: list[int]) -> Interval | None:
        ours, base = rival.wrong(seeds), self.baseline.wrong(seeds)
        if ours is None or base is None or ours.shape != base.shape:
            return None
        low, high = sample_statistics.bootstrap(ours, base)
        return 100 * low, 100 * high


def compare(records: Iterable[Record], baseline: str | None = None) -> list[Comparison]:
    """Groups records into comparisons, one for each protocol, in the order they were begun.

    Args:
        records: Any records; of several with the same `Run`, the last that has a result counts.
        baseline: Name of the rival that the others are measured against, wherever it took part;
            elsewhere, and by default, it is relu, or the first rival if there is no relu.
    """
    records = list(records)
    newest = {record.run.key(): record for record in records}  # with a result if there is one
    newest |= {record.run.key(): record for record in records if record.result is not None}
    groups = _grouped(newest.values(), lambda record: _protocol(record.run))
    comparisons = [_comparison(group, baseline) for group in groups]
    if baseline is not None:
        known = dict.fromkeys(rival.name for c in comparisons for rival in c.rivals)
        check_choice("baseline", baseline, known)
    titles = _titles([c.protocol for c in comparisons])
    return [replace(c, title=title) for c, title in zip(comparisons, titles, strict=True)]


def rival_names(runs: Sequence[Run]) -> list[str]:
    """Each run's rival: the activation, its options, and what else tells it from the others.

    Example:
        >>> from torch_srelu.lab.config.recipes import recipe
        >>> rival_names([recipe("digits", "relu", seed=1), recipe("digits", "srelu", seed=1)])
        ['relu', 'srelu']
        >>> rival_names([recipe("digits", "srelu", seed=1, quantile=q) for q in (0.8, 0.9)])
        ['srelu:quantile=0.8', 'srelu:quantile=0.9']
        >>> rival_names([recipe("digits", "srelu", seed=1, fixed=f) for f in ((), ("t_r", "a_r"))])
        ['srelu:fixed=[]', 'srelu:fixed=[t_r, a_r]']
    """
    chosen = [_traits(run) for run in runs]
    spelled = []
    for own in chosen:
        like = [other for other in chosen if other["activation"] == own["activation"]]
        differing = {f: own[f] for f in OWN_FIELDS if any(o[f] != own[f] for o in like)}
        details = {**own["options"], **differing}
        pairs = ",".join(f"{name}={_typed(value)}" for name, value in details.items())
        spelled.append(f"{own['activation']}:{pairs}" if pairs else own["activation"])
    return spelled


def _typed(value: Any) -> str:
    """A value as the command line takes it: lists without quotes."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _grouped(records: Iterable[Record], trait: Callable[[Record], Any]) -> list[list[Record]]:
    """Records with equal traits together, in order of appearance."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(repr(trait(record)), []).append(record)
    return list(groups.values())


def _comparison(records: list[Record], baseline: str | None) -> Comparison:
    groups = _grouped(records, lambda record: _traits(record.run))
    spelled = rival_names([group[0].run for group in groups])
    rivals = tuple(
        Rival(name, tuple(sorted(group, key=lambda r: r.run.seed)))
        for name, group in zip(spelled, groups, strict=True)
    )
    wanted = (name for name in (baseline, "relu", spelled[0]) if name in spelled)
    base = rivals[spelled.index(next(wanted))]
    return Comparison("", _protocol(records[0].run), rivals, base)


def _protocol(run: Run) -> dict[str, Any]:
    fields = run.to_dict()
    if run.start:  # the run whose weights it begins with depends on the seed
        fields["start"] = "another run's weights"
    return {name: v for name, v in fields.items() if name not in (*RIVAL_FIELDS, "seed")}


def _traits(run: Run) -> dict[str, Any]:
    fields = run.to_dict()
    return {name: fields[name] for name in RIVAL_FIELDS}


def _titles(protocols: list[dict[str, Any]]) -> list[str]:
    """Network, data and length, and whatever else tells a protocol from those like it."""

    def title(p: dict[str, Any]) -> str:
        return f"{p['net']} on {p['dataset']}, {counted(p['epochs'], 'epoch')}"

    titles = []
    for p in protocols:
        like = [other for other in protocols if title(other) == title(p)]
        differing = [name for name in p if any(other[name] != p[name] for other in like)]
        titles.append(", ".join([title(p), *(f"{name} {p[name]}" for name in differing)]))
    return titles


def places(records: Iterable[Record]) -> list[str]:
    """Where the numbers come from: hardware and the versions that decide them."""
    return sorted({_environment_text(e) for record in records for e in record.environments})


def _environment_text(environment: Mapping[str, Any]) -> str:
    versions = environment.get("versions", {})
    parts = [f"{name} {versions[name]}" for name in ("torch", "torch_srelu") if name in versions]
    return ", ".join([str(environment.get("hardware", "unknown hardware")), *parts])
