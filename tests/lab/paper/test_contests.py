"""Which runs a contest wants, from results alone; and that the reproduction's plan is sound."""

from __future__ import annotations

import re
from functools import partial

import pytest

from torch_srelu.lab.config.recipes import CONDITIONS, recipe
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.paper.blocks import BLOCKS, contests
from torch_srelu.lab.paper.contests import GIVE_UP, Contest, Entry, wanted
from torch_srelu.lab.paper.rows import ROWS
from torch_srelu.lab.paper.systems import SYSTEMS
from torch_srelu.lab.records.run_record import Results


def digits(activation: str, seed: int) -> Run:
    return recipe("digits", activation, seed)


def _made(activation: str, seed: int, _: Results) -> Run:
    return digits(activation, seed)


def contest(*activations: str, count: int = 3, **others: Contest) -> Contest:
    entries = tuple(Entry(name, partial(_made, name)) for name in activations)
    return Contest("a contest", "digits", "short", entries, count, **others)


def ended(status: str, activation: str, *seeds: int) -> dict[str, dict[str, str]]:
    return {digits(activation, seed).key(): {"status": status} for seed in seeds}


def names(runs: list[Run]) -> list[tuple[str, int]]:
    return [(run.activation, run.seed) for run in runs]


def test_a_seed_at_which_one_is_dead_is_replaced_for_all() -> None:
    both = contest("relu", "srelu", count=2)
    assert names(both.runs({})) == [("relu", 1), ("srelu", 1), ("relu", 2), ("srelu", 2)]
    results = ended("dead", "relu", 1) | ended("finished", "srelu", 1, 2)
    assert both.seeds(results) == ((2, 3), (1,))
    assert names(both.runs(results)) == [("relu", 2), ("srelu", 2), ("relu", 3), ("srelu", 3)]


def test_a_seed_that_diverged_keeps_its_place() -> None:
    assert contest("relu", count=2).seeds(ended("diverged", "relu", 1)) == ((1, 2), ())


def test_further_seeds_come_after_those_of_the_contest_before() -> None:
    first = contest("relu", "srelu", count=2)
    more = contest("srelu", count=2, after=first)
    assert more.seeds({}).counted == (3, 4)
    dead = ended("dead", "relu", 2)
    assert first.seeds(dead).counted == (1, 3)
    assert more.seeds(dead).counted == (4, 5)
    assert more.seeds(dead | ended("dead", "srelu", 4)).counted == (5, 6)


def test_rivals_who_come_later_take_the_seeds_of_the_first() -> None:
    first = contest("relu", "srelu", count=2)
    later = contest("srelu", "apl", count=3, like=first)
    assert later.seeds({}).counted == (1, 2, 3)
    dead = ended("dead", "relu", 2)
    assert later.seeds(dead) == ((1, 3, 4), ())  # at 2 SReLU is alive, and met nobody
    assert later.seeds(dead | ended("dead", "apl", 1)) == ((3, 4, 5), (1,))


def test_ablations_are_compared_with_the_srelu_of_the_headline() -> None:
    (headline,) = contests(["headline-cifar10"])
    dead = {run.key(): {"status": "dead"} for run in headline.runs({}) if run.seed == 3}
    base = {run.key() for run in headline.runs(dead) if run.activation == "srelu"}
    assert len(base) == headline.count
    for later in contests(["ablations", "shared", "units-cifar10"]):
        assert base <= {run.key() for run in later.runs(dead)}, later.name


def test_where_every_seed_dies_it_is_given_up() -> None:
    results = ended("dead", "relu", *range(1, 50))
    assert contest("relu", "srelu").seeds(results) == ((), tuple(range(1, GIVE_UP + 1)))
    assert contest("relu", "srelu").runs(results) == []


def test_a_run_of_several_contests_is_wanted_once() -> None:
    runs = wanted([contest("relu", "srelu", count=1), contest("srelu", "prelu", count=1)], {})
    assert names(runs) == [("relu", 1), ("srelu", 1), ("prelu", 1)]


def test_the_headline_is_the_published_protocol() -> None:
    runs = wanted(contests(["headline"]), {})
    assert len(runs) == 2 * 3 * 3
    more = wanted(contests(["seeds"]), {})
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
    (run, *_) = wanted(contests(["published-cifar10"]), {})
    steps = 50_000 // run.batch
    assert (run.epochs - 1) * steps < 120_000 <= run.epochs * steps


def test_rows_name_blocks_that_train_them() -> None:
    for row, make in {**ROWS, **SYSTEMS}.items():
        text = (make.__doc__ or "").partition("Command:")[2].partition("Cost:")[0]
        for name in re.findall(r"``(?:srelu paper run )?(.+?)``", text):
            rows = {entry.row for c in BLOCKS[name].contests for entry in c.entries}
            assert row in rows, (row, name)


def test_no_two_runs_of_the_reproduction_have_one_key() -> None:
    runs = wanted(contests(), {})
    assert len({run.key() for run in runs}) == len({repr(run) for run in runs}) == len(runs)
    single = [c.name for c in contests()]
    assert len(set(single)) == len(single)


def test_the_slope_is_the_one_with_the_lowest_validation_error() -> None:
    (slopes, lrelu) = contests(["lrelu-cifar10"])
    assert slopes.name == "slopes-cifar10"
    candidates = wanted([slopes], {})
    assert [run.validation for run in candidates] == [0.2] * 4
    assert wanted([lrelu], {}) == candidates  # the others wait
    errors = [0.3, 0.2, 0.1, 0.4]
    results = {
        run.key(): {"status": "finished", "val_error": error, "test_error": 1 - error}
        for run, error in zip(candidates, errors, strict=True)
    }
    chosen = [run for run in wanted([lrelu], results) if run.activation == "lrelu"][4:]
    assert [(run.options, run.validation, run.seed) for run in chosen] == [
        ({"slope": 0.2}, 0.0, seed) for seed in (1, 2, 3)
    ]
    with_flips = [run for run in wanted(contests(["flips-few-cifar10"]), results)][4:]
    assert with_flips[0].options == {"slope": 0.2}
    results[candidates[2].key()] = {"status": "diverged", "val_error": None}
    chosen = [run for run in wanted([lrelu], results) if run.activation == "lrelu"][4:]
    assert chosen[0].options == {"slope": 0.1}


def test_a_dead_candidate_has_the_slope_chosen_at_the_next_seed() -> None:
    (slopes, lrelu) = contests(["lrelu-cifar10"])
    first = wanted([slopes], {})
    results = {run.key(): {"status": "finished", "val_error": 0.1} for run in first}
    results[first[0].key()] = {"status": "dead", "val_error": None}
    second = wanted([slopes], results)
    assert {run.seed for run in second} == {2}
    assert not [run for run in wanted([lrelu], results) if not run.validation]  # they wait
    for run, error in zip(second, [0.3, 0.2, 0.4, 0.1], strict=True):
        results[run.key()] = {"status": "finished", "val_error": error}
    chosen = [r for r in wanted([lrelu], results) if r.activation == "lrelu" and not r.validation]
    assert {run.options["slope"] for run in chosen} == {0.33}


def test_the_compute_control_takes_longer_than_srelu() -> None:
    (compute,) = contests(["compute"])
    assert {(run.activation, run.epochs) for run in compute.runs({})} == {("relu", 110)}


def test_reuse_goes_on_from_the_leaky_network_of_its_seed() -> None:
    before, further = contests(["reuse"])
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
    before, further = contests(["reuse"])
    results = {before.runs({})[0].key(): {"status": fate}}
    assert further.seeds(results).counted == seeds
    assert [run.seed for run in further.runs(results)] == [s for s in runs for _ in range(2)]
    assert not further.waits(results)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown block 'headlin': did you mean 'headline'"):
        contests(["headlin"])
    assert {c.condition for c in contests()} <= CONDITIONS.keys()
