"""The protocol of the reproduction, against what was published."""

import pytest

from torch_srelu.lab.config.recipes import CONDITIONS, LENGTHS, faithful, recipe
from torch_srelu.lab.config.run import learning_rate
from torch_srelu.lab.training.run_checks import checked

STEPS = 50_000 // 128


@pytest.mark.parametrize(
    ("condition", "falls"),
    [
        ("cifar10", {100_000 / 120_000: 0.01}),
        ("cifar100", {200 / 260: 0.002, 230 / 260: 0.0002}),
    ],
)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_learning_rate_falls_at_the_published_shares(condition, falls, length) -> None:
    run = faithful(condition, "relu", 1, length)
    steps = run.epochs * STEPS
    for share, rate in falls.items():
        step = round(share * steps)
        assert learning_rate(run, step, steps) == pytest.approx(rate)
        assert learning_rate(run, step - 1, steps) == pytest.approx(10 * rate)


def test_rivals_share_everything_but_the_activation() -> None:
    own = {"activation", "freeze"}
    for condition, length in ((c, n) for c in CONDITIONS for n in LENGTHS):
        if CONDITIONS[condition]["dataset"] not in LENGTHS[length]:
            continue
        chosen = [faithful(condition, act, 1, length) for act in ("relu", "prelu", "srelu")]
        assert [checked(run).key() for run in chosen] == [run.key() for run in chosen]
        runs = [run.to_dict() for run in chosen]
        assert all(
            {k: r[k] for k in r.keys() - own} == {k: runs[0][k] for k in runs[0].keys() - own}
            for r in runs
        )


def test_srelu_is_frozen_for_a_twentieth() -> None:
    assert [faithful("cifar10", "srelu", 1, n).freeze for n in LENGTHS] == [5, 15]


def test_what_is_not_published_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown data set of length published 'mnist'"):
        faithful("mnist", "relu", 1, "published")
    with pytest.raises(ValueError, match="unknown condition 'cifar'"):
        faithful("cifar", "relu", 1)


def test_data_without_a_recipe_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown data set with a recipe of its own 'imagenette'"):
        recipe("imagenette", "relu", seed=1)
