"""The experiments of the reproduction in one table: rows, condition, seeds, and their blocks.

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
from .published import CIFAR, CIFAR10, CIFAR100, FLIPS10, FLIPS100, IMAGENET, MNIST, TITLES
from .rows import ABLATIONS, ROWS, SLOPES, SYSTEMS

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
    if row in _REUSED:
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


class ExperimentBlock(NamedTuple):
    """Experiments that are run together, and what for, in words."""

    words: str
    experiments: tuple[Experiment, ...]


def _nin(
    block: str, condition: str, activations: Iterable[str], num_seeds: int, **others: Any
) -> Experiment:
    """NIN with some activations."""
    dataset = condition.partition("+")[0]
    name = block if block.endswith(dataset) else f"{block}-{dataset}"
    return Experiment(name, condition, tuple(f"nin+{a}" for a in activations), num_seeds, **others)


def _beside_srelu(block: str, condition: str, *activations: str, **others: Any) -> Experiment:
    """Further activations beside SReLU, at the seeds of those that were first."""
    others |= {"baseline": "nin+srelu", "seeds_of": _FIRST[condition]}
    return _nin(block, condition, ("srelu", *activations), 3, **others)


def _ablation(name: str) -> Experiment:
    rows, first = ("nin+srelu", f"srelu:{name}"), _FIRST[CIFAR10]
    return Experiment(f"ablation-{name}", CIFAR10, rows, 3, baseline=rows[0], seeds_of=first)


def _system(row: str, condition: str) -> Experiment:
    """A system with one seed: it is compared with none."""
    return Experiment(f"{row}-{condition.replace('+', '-')}", condition, (row,), 1, OWN)


def _systems(condition: str, *rows: str) -> tuple[Experiment, ...]:
    return tuple(_system(row, condition) for row in rows)


_MAIN = ("relu", "prelu", "srelu")
_HEADLINE = tuple(_nin("headline", c, _MAIN, 3) for c in CIFAR)
_MNIST = _nin("mnist", MNIST, _MAIN, 3)
_FIRST = {e.condition: e for e in (*_HEADLINE, _MNIST)}  # of each condition
_SLOPES = {
    c: Experiment(f"slopes-{c}", c, tuple(f"lrelu:{slope}" for slope in SLOPES), 1) for c in _FIRST
}
_BEFORE = Experiment("reuse-before", CIFAR10, ("reuse:before",), 3)
_REUSED = ("reuse:lrelu", "reuse:srelu")
_REUSE = Experiment("reuse-cifar10", CIFAR10, _REUSED, 3, seeds_of=_BEFORE, depends_on=_BEFORE)
GOOGLENETS = ("googlenet", "googlenet+prelu", "googlenet+srelu")

BLOCKS: dict[str, ExperimentBlock] = {
    "headline": ExperimentBlock(
        "ReLU, PReLU and SReLU on both CIFARs, 100 epochs, 3 seeds", _HEADLINE
    ),
    "seeds": ExperimentBlock(
        "PReLU and SReLU once more, over 5 further seeds",
        tuple(_nin("seeds", c, _MAIN[1:], 5, after=_FIRST[c]) for c in CIFAR),
    ),
    "start": ExperimentBlock(
        "ReLU from CIFAR-100's published start, and on MNIST from biases of 0: is it dead?",
        (
            Experiment("start-cifar100", CIFAR100, ("relu:published-start",), 3),
            Experiment("start-mnist", MNIST, ("relu:zero-biases",), 3),
        ),
    ),
    **{
        f"published-{c}": ExperimentBlock(
            f"the same three at the published length, {TITLES[c]}, 2 seeds",
            (_nin(f"published-{c}", c, _MAIN, 2, length="published"),),
        )
        for c in CIFAR
    },
    "ablations": ExperimentBlock(
        "SReLU with one decision changed, CIFAR-10, 3 seeds each", tuple(map(_ablation, ABLATIONS))
    ),
    "shared": ExperimentBlock(
        "channel-shared SReLU against channel-wise, CIFAR-10, 3 seeds (Table 1)",
        (_beside_srelu("shared", CIFAR10, "srelu-shared"),),
    ),
    "reuse": ExperimentBlock(
        "a leaky ReLU network, then 20 epochs as it is or as SReLU, CIFAR-10, 3 seeds",
        (_REUSE,),
    ),
    "compute": ExperimentBlock(
        "ReLU for longer than SReLU takes, CIFAR-10, 3 seeds",
        (Experiment("compute-cifar10", CIFAR10, ("relu:longer",), 3),),
    ),
    "lrelu": ExperimentBlock(
        "LReLU's slope by validation, then LReLU on both CIFARs and MNIST, 3 seeds",
        tuple(_beside_srelu("lrelu", c, "lrelu", depends_on=_SLOPES[c]) for c in _SLOPES),
    ),
    "units": ExperimentBlock(
        "APL and SReLU set by hand beside SReLU, both CIFARs, 3 seeds",
        tuple(_beside_srelu("units", c, "apl", "srelu-manual") for c in CIFAR),
    ),
    "mnist": ExperimentBlock(
        "ReLU, PReLU and SReLU on MNIST, 50 epochs, 3 seeds (Table 4)", (_MNIST,)
    ),
    "flips": ExperimentBlock(
        "ReLU, PReLU and SReLU with mirrored images, both CIFARs, 3 seeds",
        tuple(_nin("flips", c, _MAIN, 3) for c in (FLIPS10, FLIPS100)),
    ),
    "flips-few": ExperimentBlock(
        "LReLU and APL with mirrored images, both CIFARs, 1 seed",
        tuple(
            _nin("flips-few", f"{c}+flips", ("lrelu", "apl"), 1, depends_on=_SLOPES[c])
            for c in CIFAR
        ),
    ),
    "apl-neuron": ExperimentBlock(
        "APL per neuron, as its authors published it, CIFAR-10, 1 seed",
        (_nin("apl-neuron", CIFAR10, ("apl-neuron",), 1),),
    ),
    "nin": ExperimentBlock(
        "NIN as its authors trained it, CIFAR-10, 260 epochs, 1 seed", _systems(CIFAR10, "nin")
    ),
    "linear": ExperimentBlock(
        "a linear classifier, to be beaten, both CIFARs and MNIST, 1 seed",
        (
            *(_system("linear", c) for c in (*CIFAR, MNIST)),
            *(_system("linear-gcn", c) for c in CIFAR),
        ),
    ),
    "systems-mnist": ExperimentBlock(
        "stochastic pooling, maxout and DSN on MNIST, whole length, 1 seed (Table 4)",
        _systems(MNIST, "stochastic-pooling", "maxout", "dsn"),
    ),
    "systems-cifar10": ExperimentBlock(
        "maxout, probout and the APL network for 60 epochs, DSN for 400, CIFAR-10, 1 seed",
        _systems(CIFAR10, "maxout", "probmaxout", "apl", "dsn"),
    ),
    "systems-cifar100": ExperimentBlock(
        "the same and tree-based priors for 60 epochs, DSN for 400, CIFAR-100, 1 seed",
        _systems(CIFAR100, "maxout", "probmaxout", "apl", "tree", "dsn"),
    ),
    "systems-flips": ExperimentBlock(
        "maxout and DSN with mirrored images, CIFAR-10, 60 epochs, 1 seed",
        _systems(FLIPS10, "maxout", "dsn"),
    ),
    "googlenet": ExperimentBlock(
        "GoogLeNet + ReLU, PReLU and SReLU on Imagenette, 100 epochs, 2 seeds (Table 5)",
        (Experiment("googlenet-imagenette", IMAGENET, GOOGLENETS, 2, OWN),),
    ),
    "systems-left": ExperimentBlock(
        "what is left of Table 2: NIN, probout and the APL network, 1 seed",
        (
            *_systems(CIFAR100, "nin"),
            *_systems(FLIPS10, "nin", "probmaxout", "apl"),
            *_systems(FLIPS100, "apl"),
        ),
    ),
    REHEARSAL: ExperimentBlock(
        "all of this in a minute: 4 epochs of digits, 2 seeds; counts for no table",
        (_nin(REHEARSAL, "digits", _MAIN, 2),),
    ),
}


def select_experiments(names: Sequence[str] | None = None) -> list[Experiment]:
    """The experiments of blocks, or single ones, by name, each after the one that it depends on.

    If none is named, all that count.

    Example:
        >>> [experiment.name for experiment in select_experiments(["headline"])]
        ['headline-cifar10', 'headline-cifar100']
    """
    blocks = {name: block.experiments for name, block in BLOCKS.items()}
    known = {e.name: (e,) for own in blocks.values() for e in with_dependencies(own)} | blocks
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
