"""The rule that decides how a run ends."""

import math

import pytest

from torch_srelu.lab.models import network_registry
from torch_srelu.lab.records.history import Metrics
from torch_srelu.lab.records.run_status import chance_loss, status_after
from torch_srelu.lab.util.patience import DEAD_AFTER, PATIENCE


@pytest.mark.parametrize(
    ("losses", "epochs", "status"),
    [
        ([], 5, None),
        ([2.3026], 5, None),
        ([2.3026, 2.3026], 5, "dead"),
        ([2.3026, 2.28], 5, None),
        ([2.0, 1.0, math.nan], 5, "diverged"),
        ([math.inf], 5, "diverged"),
        ([2.0, 1.0, 2.3026], 5, None),
        ([2.0, 1.0, 2.3026], 3, "diverged"),
        ([2.0, 1.0, 0.5], 3, "finished"),
        ([2.0], 1, "finished"),
        ([2.31], 1, "finished"),  # one epoch says nothing yet
        ([2.2] + [2.31] * (PATIENCE - 1), 100, None),
        ([2.2] * 2 + [2.31] * (PATIENCE - 1), 100, None),
        ([2.2] + [2.31] * PATIENCE, 100, "diverged"),  # it would guess to its end
        ([2.2] + [2.31] * (PATIENCE - 1) + [2.3], 100, None),
    ],
)
def test_the_rule_for_dead_and_diverged(losses, epochs, status):
    assert status_after(rows(losses), epochs, chance_loss(10)) == status


@pytest.mark.parametrize(
    ("losses", "status"),
    [
        ([2.31] * 2, None),
        ([2.31] * 4, "dead"),
        ([2.31] * 3 + [2.2], None),
        ([2.31, 2.2, 2.2, 2.31], None),
        ([2.2] + [2.31] * 4, None),
        ([2.2] + [2.31] * 5, "diverged"),
    ],
)
def test_dead_after_is_the_networks(losses, status):
    assert status_after(rows(losses), 6, chance_loss(10), dead_after=4) == status


def test_networks_that_learn_late_have_more_patience():
    names = ("maxout-cifar10", "cnn-cifar100", "tree-cifar100", "dsn-mnist")
    assert {network_registry.network_spec(name).dead_after for name in names} == {PATIENCE}
    assert network_registry.network_spec("nin-cifar10").dead_after == DEAD_AFTER


def rows(losses) -> list[Metrics]:
    return [Metrics(i, 0.1, loss, 0.5, 1.0, 1.0, None, "plain") for i, loss in enumerate(losses)]
