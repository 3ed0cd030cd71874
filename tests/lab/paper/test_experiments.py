"""Which runs an experiment requires, by results alone; and that the experiments are sound."""

from __future__ import annotations

import pytest

from torch_srelu.lab.config.recipes import CONDITIONS
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.paper.experiments import (
    MAX_DEAD_SEEDS,
    Experiment,
    experiments_with,
    required_runs,
    select_experiments,
)
from torch_srelu.lab.paper.published import ERRORS, TABLES
from torch_srelu.lab.paper.row_recipes import ROWS, SYSTEMS


def digits(activation: str, seed: int) -> Run:
    return ROWS[f"nin+{activation}"]("digits", seed)


def experiment(*activations: str, num_seeds: int = 3, **others: Experiment) -> Experiment:
    rows = tuple(f"nin+{name}" for name in activations)
    return Experiment("an experiment", "digits", rows, num_seeds, **others)


def ended(status: str, activation: str, *seeds: int) -> dict[str, dict[str, str]]:
    return {digits(activation, seed).key(): {"status": status} for seed in seeds}


def names(runs: list[Run]) -> list[tuple[str, int]]:
    return [(run.activation, run.seed) for run in runs]


def test_a_seed_at_which_one_is_dead_is_replaced_for_all() -> None:
    both = experiment("relu", "srelu", num_seeds=2)
    assert names(both.runs({})) == [("relu", 1), ("srelu", 1), ("relu", 2), ("srelu", 2)]
    results = ended("dead", "relu", 1) | ended("finished", "srelu", 1, 2)
    assert both.seeds(results) == ((2, 3), (1,))
    assert names(both.runs(results)) == [("relu", 2), ("srelu", 2), ("relu", 3), ("srelu", 3)]


def test_a_seed_that_diverged_keeps_its_place() -> None:
    assert experiment("relu", num_seeds=2).seeds(ended("diverged", "relu", 1)) == ((1, 2), ())


def test_further_seeds_come_after_those_of_the_experiment_before() -> None:
    first = experiment("relu", "srelu", num_seeds=2)
    more = experiment("srelu", num_seeds=2, after=first)
    assert more.seeds({}).counted == (3, 4)
    dead = ended("dead", "relu", 2)
    assert first.seeds(dead).counted == (1, 3)
    assert more.seeds(dead).counted == (4, 5)
    assert more.seeds(dead | ended("dead", "srelu", 4)).counted == (5, 6)


def test_rows_of_a_later_experiment_take_the_seeds_of_the_first() -> None:
    first = experiment("relu", "srelu", num_seeds=2)
    later = experiment("srelu", "apl", num_seeds=3, seeds_of=first)
    assert later.seeds({}).counted == (1, 2, 3)
    dead = ended("dead", "relu", 2)
    assert later.seeds(dead) == ((1, 3, 4), ())  # at 2 ReLU is dead, SReLU is not
    assert later.seeds(dead | ended("dead", "apl", 1)) == ((3, 4, 5), (1,))


def test_ablations_are_compared_with_the_srelu_of_the_headline() -> None:
    (headline,) = select_experiments(["headline-cifar10"])
    dead = {run.key(): {"status": "dead"} for run in headline.runs({}) if run.seed == 3}
    base = {run.key() for run in headline.runs(dead) if run.activation == "srelu"}
    assert len(base) == headline.num_seeds
    for later in select_experiments(["ablations", "shared", "units-cifar10"]):
        assert base <= {run.key() for run in later.runs(dead)}, later.name


def test_where_every_seed_is_dead_it_is_given_up() -> None:
    results = ended("dead", "relu", *range(1, 50))
    assert experiment("relu", "srelu").seeds(results) == ((), tuple(range(1, MAX_DEAD_SEEDS + 1)))
    assert experiment("relu", "srelu").runs(results) == []


def test_a_run_of_several_experiments_is_required_once() -> None:
    runs = required_runs(
        [experiment("relu", "srelu", num_seeds=1), experiment("srelu", "prelu", num_seeds=1)], {}
    )
    assert names(runs) == [("relu", 1), ("srelu", 1), ("prelu", 1)]


def test_the_headline_is_the_published_protocol() -> None:
    runs = required_runs(select_experiments(["headline"]), {})
    assert len(runs) == 2 * 3 * 3
    more = required_runs(select_experiments(["seeds"]), {})
    assert len(more) == 2 * 2 * 5
    assert not {run.key() for run in runs} & {run.key() for run in more}
    for run in (*runs, *more):
        assert (run.epochs, run.batch, run.augmentation, run.ema) == (100, 128, "none", 0.9995)
        assert run.net == f"nin-{run.dataset}"
        assert (run.lr, run.weight_decay) == {"cifar10": (0.1, 1e-4), "cifar100": (0.02, 5e-4)}[
            run.dataset
        ]
        if run.activation == "srelu":
            assert (run.freeze, run.quantile, run.lr_scale, run.options) == (5, 0.9, 1.0, {})


def test_the_published_length_is_120000_iterations_in_whole_epochs() -> None:
    (run, *_) = required_runs(select_experiments(["published-cifar10"]), {})
    steps = 50_000 // run.batch
    assert (run.epochs - 1) * steps < 120_000 <= run.epochs * steps


def test_every_entry_of_the_papers_tables_has_an_experiment() -> None:
    entries = {(row.name, c) for table in TABLES.values() for row in table.rows for c in row.errors}
    assert entries == ERRORS.keys()
    for row, condition in entries:
        assert experiments_with(row, condition), (row, condition)
    trained = {row for e in select_experiments() for row in e.rows}
    assert trained == ROWS.keys() | SYSTEMS.keys()


def test_no_two_runs_of_the_reproduction_have_one_key() -> None:
    runs = required_runs(select_experiments(), {})
    assert len({run.key() for run in runs}) == len({repr(run) for run in runs}) == len(runs)
    single = [c.name for c in select_experiments()]
    assert len(set(single)) == len(single)


def test_the_slope_is_the_one_with_the_lowest_validation_error() -> None:
    (slopes, lrelu) = select_experiments(["lrelu-cifar10"])
    assert slopes.name == "slopes-cifar10"
    candidates = required_runs([slopes], {})
    assert [run.validation for run in candidates] == [0.2] * 4
    assert required_runs([lrelu], {}) == candidates  # the others wait
    errors = [0.3, 0.2, 0.1, 0.4]
    results = {
        run.key(): {"status": "finished", "val_error": error, "test_error": 1 - error}
        for run, error in zip(candidates, errors, strict=True)
    }
    chosen = [run for run in required_runs([lrelu], results) if run.activation == "lrelu"][4:]
    assert [(run.options, run.validation, run.seed) for run in chosen] == [
        ({"slope": 0.2}, 0.0, seed) for seed in (1, 2, 3)
    ]
    with_flips = [run for run in required_runs(select_experiments(["flips-few-cifar10"]), results)][
        4:
    ]
    assert with_flips[0].options == {"slope": 0.2}
    results[candidates[2].key()] = {"status": "diverged", "val_error": None}
    chosen = [run for run in required_runs([lrelu], results) if run.activation == "lrelu"][4:]
    assert chosen[0].options == {"slope": 0.1}


def test_a_dead_candidate_has_the_slope_chosen_at_the_next_seed() -> None:
    (slopes, lrelu) = select_experiments(["lrelu-cifar10"])
    first = required_runs([slopes], {})
    results = {run.key(): {"status": "finished", "val_error": 0.1} for run in first}
    results[first[0].key()] = {"status": "dead", "val_error": None}
    second = required_runs([slopes], results)
    assert {run.seed for run in second} == {2}
    assert not [run for run in required_runs([lrelu], results) if not run.validation]  # they wait
    for run, error in zip(second, [0.3, 0.2, 0.4, 0.1], strict=True):
        results[run.key()] = {"status": "finished", "val_error": error}
    chosen = [
        r for r in required_runs([lrelu], results) if r.activation == "lrelu" and not r.validation
    ]
    assert {run.options["slope"] for run in chosen} == {0.33}


def test_the_compute_control_takes_longer_than_srelu() -> None:
    (compute,) = select_experiments(["compute"])
    assert {(run.activation, run.epochs) for run in compute.runs({})} == {("relu", 110)}


def test_reuse_goes_on_from_the_leaky_network_of_its_seed() -> None:
    before, further = select_experiments(["reuse"])
    starts = {run.seed: run.key() for run in before.runs({})}
    for run in further.runs({}):
        assert run.start == starts[run.seed]
        assert (run.epochs, run.schedule, run.freeze) == (20, "constant", 0)
        assert run.lr == pytest.approx(0.01)  # what the first training ended with
    dead = {starts[2]: {"status": "dead"}}  # replaced for those that would go on from it too
    assert before.seeds(dead).counted == further.seeds(dead).counted == (1, 3, 4)


@pytest.mark.parametrize(
    ("fate", "seeds", "runs"), [("dead", (2, 3, 4), [2, 3, 4]), ("diverged", (1, 2, 3), [2, 3])]
)
def test_what_came_to_nothing_is_not_reused(fate: str, seeds: tuple[int, ...], runs: list) -> None:
    before, further = select_experiments(["reuse"])
    results = {before.runs({})[0].key(): {"status": fate}}
    assert further.seeds(results).counted == seeds
    assert [run.seed for run in further.runs(results)] == [s for s in runs for _ in range(2)]
    assert not further.waits(results)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown block 'headlin': did you mean 'headline'"):
        select_experiments(["headlin"])
    assert {c.condition for c in select_experiments()} <= CONDITIONS.keys()
