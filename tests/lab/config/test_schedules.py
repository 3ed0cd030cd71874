"""Learning rates against the published formulas, step by step."""

import math

import pytest

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.run import learning_rate

STEPS = 120


def rates(schedule: str, **fields) -> list[float]:
    run = recipe("digits", "relu", seed=0, lr=0.4, schedule=schedule, **fields)
    return [learning_rate(run, step, STEPS) for step in range(STEPS)]


def test_constant():
    assert rates("constant") == [0.4] * STEPS


def test_multistep_falls_at_each_milestone():
    found = rates("multistep", milestones=(100 / 120, 110 / 120))
    assert found == pytest.approx([0.4] * 100 + [0.04] * 10 + [0.004] * 10)


def test_cosine_goes_to_zero():
    expected = [0.2 * (1 + math.cos(math.pi * i / STEPS)) for i in range(STEPS)]
    assert rates("cosine") == pytest.approx(expected)


def test_poly():
    expected = [0.4 * (1 - i / STEPS) ** 0.5 for i in range(STEPS)]
    assert rates("poly", power=0.5) == pytest.approx(expected)
