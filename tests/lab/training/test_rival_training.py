"""Every rival trains in the laboratory's one loop: small networks of each kind, on real digits."""

import pytest
import torch

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.models import network_registry
from torch_srelu.lab.models.rivals import dsn
from torch_srelu.lab.models.rivals.maxout_networks import MaxoutPlan
from torch_srelu.lab.models.rivals.stack import (
    Conv,
    Dense,
    Drop,
    Norm,
    Plan,
    Pool,
    average,
    maximum,
)
from torch_srelu.lab.models.rivals.stochastic_pooling import StochasticPlan, StochasticPool2d
from torch_srelu.lab.models.rivals.tree_prior import REFINED_FROM, TreeNetwork, TreePlan
from torch_srelu.lab.records import run_record
from torch_srelu.lab.runtime.distributed import Team
from torch_srelu.lab.training.callbacks import Progress
from torch_srelu.lab.training.loop import train
from torch_srelu.lab.training.trainer import Session

CPU = torch.device("cpu")
LAST = Dense("y", 10, acts=False)
PLANS = {
    "maxout": MaxoutPlan(
        1,
        8,
        10,
        (
            Drop(0.1),
            Conv("h0", 12, 3, padding=1, pieces=2, max_norm=1.0),
            Pool(maximum, 2, 2),
            Drop(0.2),
            Dense("h1", 20, pieces=3, max_norm=1.5),
            LAST,
        ),
        threads=1,
    ),
    "stochastic": StochasticPlan(
        1, 8, 10, (Conv("conv", 16, 3, padding=1), Pool(StochasticPool2d, 3, 2), Norm(), LAST)
    ),
    "cnn": Plan(
        1, 8, 10, (Conv("conv", 16, 3, padding=1), Pool(average, 3, 2), Dense("ip", 20), LAST)
    ),
    "dsn": dsn._plan("digits", "softmax"),
    "tree": TreePlan(1, 8, 10, (Dense("hidden", 30), LAST), (0, 0, 0, 1, 1, 1, 2, 2, 3, 3)),
}


@pytest.fixture(autouse=True)
def _small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_registry, "PLANS", network_registry.PLANS | PLANS)


def run_of(net: str, activation: str = "relu", **changes) -> Run:
    decided = {"epochs": 4, "batch": 64, "lr": 0.05, "weight_decay": 1e-4} | changes
    return recipe("digits", activation, 1, net=net, **decided)


CASES = [
    ("maxout", "maxout"),
    ("maxout", "probout"),
    ("stochastic", "relu"),
    ("cnn", "apl"),
    ("cnn", "srelu"),
    ("dsn", "relu"),
    ("tree", "relu"),
]


@pytest.mark.parametrize(("net", "activation"), CASES)
def test_it_learns_and_goes_on_bit_for_bit(tmp_path, net, activation):
    run = run_of(net, activation)
    whole = train(run, tmp_path / "whole", device=CPU)
    assert whole.result is not None
    assert whole.result["status"] == "finished"
    assert whole.result["test_error"] < 0.6  # guessing gives 0.9

    def stop(progress: Progress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "cut", device=CPU, on_epoch=stop, checkpoint_seconds=0.0)
    record = train(run, tmp_path / "cut", device=CPU)
    assert run_record.finished(tmp_path / "cut", run) is not None
    without_time = [[m._replace(seconds=0) for m in r.metrics] for r in (record, whole)]
    assert without_time[0] == without_time[1]
    assert torch.equal(record.predictions(), whole.predictions())


def session_of(run: Run) -> Session:
    return Session(run, None, CPU, Team(), capture=False)


def test_weights_are_within_their_norms_after_every_step():
    made = session_of(run_of("maxout", "maxout", lr=0.3))
    longest: list[float] = []

    def look() -> None:
        for name, limit in (("h0", 1.0), ("h1", 1.5)):
            weight = made.net.get_submodule(f"{name}.linear").weight
            norms = weight.detach().flatten(1).norm(dim=1)
            assert (norms <= limit * (1 + 1e-6)).all()
            longest.append((norms.max() / limit).item())

    made.train_epoch(look)
    assert max(longest) > 1 - 1e-6  # the constraint had something to do


def test_companions_rest_after_their_phase():
    made = session_of(run_of("dsn"))
    heads = made.net.get_submodule("heads")
    seen = []
    for _ in range(2):
        made.train_epoch(lambda: None)
        seen.append([p.detach().clone() for p in heads.parameters()])
    fresh = PLANS["dsn"].build("relu", seed=1).get_submodule("heads")
    assert not any(map(torch.equal, seen[0], fresh.parameters()))
    assert all(map(torch.equal, seen[0], seen[1]))  # a quarter of four epochs is over


def test_the_tree_changes_between_epochs_of_the_second_half_only():
    made = session_of(run_of("tree"))
    net = made.net
    assert isinstance(net, TreeNetwork)
    trees = []
    for _ in range(4):
        made.train_epoch(lambda: None)
        trees.append(net.prior.superclass.clone())
    first = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
    assert REFINED_FROM == 0.5
    assert torch.equal(trees[1], first)
    assert not torch.equal(trees[2], first)


@pytest.mark.parametrize(("net", "activation"), [("maxout", "maxout"), *CASES[3:]])
def test_a_compiler_sees_the_whole_network(net, activation):
    """Forward pass and losses are one graph, with masks that are drawn beforehand."""
    made = session_of(run_of(net, activation))
    step = made.take_step
    step.begin_epoch(0)
    x, y = made.batches.next()
    step.dropout.seek(0)
    expected, _ = step._loss(x, y)
    step.dropout.seek(0)
    step._draw_masks(x)
    loss, _ = torch.compile(step._loss, backend="eager", fullgraph=True)(x, y)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(("net", "activation"), CASES)
def test_what_draws_inside_is_not_compiled(net, activation):
    run = run_of(net, activation)
    made = Session(run, None, CPU, Team(), capture=False, compiled=True)
    assert made.take_step.compiled == ((net, activation) not in CASES[1:3])
