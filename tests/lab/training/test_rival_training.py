"""Every rival is trained by the same loop: small networks of each kind, on real digits."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.models import network_registry
from torch_srelu.lab.models.layers import LRN, ConvSpec, DenseSpec
from torch_srelu.lab.models.rivals import dsn
from torch_srelu.lab.models.rivals.stochastic_pooling import StochasticPool2d, StochasticPoolingSpec
from torch_srelu.lab.models.rivals.tree_prior import REFINED_FROM, TreeNetwork, TreePriorSpec
from torch_srelu.lab.models.sequential import (
    DropoutSpec,
    PoolSpec,
    SequentialSpec,
    average_pool,
    max_pool,
)
from torch_srelu.lab.records import run_record
from torch_srelu.lab.runtime.distributed import ProcessGroup
from torch_srelu.lab.training.callbacks import Progress
from torch_srelu.lab.training.loop import fit, train
from torch_srelu.lab.training.trainer import Trainer

CPU = torch.device("cpu")
T = TypeVar("T")
CONV = ConvSpec("conv", 16, 3, padding=1)
LAST = DenseSpec("y", 10, acts=False)
TREE = (0, 0, 0, 1, 1, 1, 2, 2, 3, 3)
SMALL = {
    "maxout": SequentialSpec(
        1,
        8,
        10,
        (
            DropoutSpec(0.1),
            ConvSpec("h0", 12, 3, padding=1, pieces=2, max_norm=1.0),
            PoolSpec(max_pool, 2, 2),
            DropoutSpec(0.2),
            DenseSpec("h1", 20, pieces=3, max_norm=1.5),
            LAST,
        ),
        threads=1,
    ),
    "stochastic": StochasticPoolingSpec(1, 8, 10, (CONV, PoolSpec(StochasticPool2d), LRN, LAST)),
    "cnn": SequentialSpec(1, 8, 10, (CONV, PoolSpec(average_pool), DenseSpec("ip", 20), LAST)),
    "dsn": dsn.supervised_nin("digits", "softmax"),
    "tree": TreePriorSpec(1, 8, 10, (DenseSpec("hidden", 30), LAST), TREE),
}


@pytest.fixture(autouse=True)
def _small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_registry, "NETWORKS", network_registry.NETWORKS | SMALL)


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


@pytest.mark.slow
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


def trainer_of(run: Run) -> Trainer:
    return Trainer(run, None, CPU, ProcessGroup(), capture=False)


def test_weights_are_within_their_norms_after_every_step(tmp_path):
    made = trainer_of(run_of("maxout", "maxout", lr=0.3))
    longest: list[float] = []

    def check(_: Progress) -> None:
        for name, limit in (("h0", 1.0), ("h1", 1.5)):
            weight = made.net.get_submodule(f"{name}.linear").weight
            norms = weight.detach().flatten(1).norm(dim=1)
            assert (norms <= limit * (1 + 1e-6)).all()
            longest.append((norms.max() / limit).item())

    fit(made, tmp_path, [check])
    assert max(longest) > 1 - 1e-6  # the constraint had something to do


def after_epochs(trainer: Trainer, look: Callable[[], T]) -> list[T]:
    """What ``look`` returns after each epoch of the training."""
    seen: list[T] = []

    def at_ends(progress: Progress) -> None:
        if progress.ends_epoch:
            seen.append(look())

    fit(trainer, Path(), [at_ends])
    return seen


def test_companion_heads_are_trained_in_the_first_quarter_only():
    made = trainer_of(run_of("dsn"))
    heads = made.net.get_submodule("heads")
    seen = after_epochs(made, lambda: [p.detach().clone() for p in heads.parameters()])
    fresh = SMALL["dsn"].build("relu", seed=1).get_submodule("heads")
    assert not any(map(torch.equal, seen[0], fresh.parameters()))
    assert all(map(torch.equal, seen[0], seen[1]))  # a quarter of four epochs is over


def test_the_tree_changes_between_epochs_of_the_second_half_only():
    made = trainer_of(run_of("tree"))
    net = made.net
    assert isinstance(net, TreeNetwork)
    trees = after_epochs(made, lambda: net.prior.superclass.clone())
    first = torch.tensor(TREE)
    assert REFINED_FROM == 0.5
    assert torch.equal(trees[1], first)
    assert not torch.equal(trees[2], first)


@pytest.mark.parametrize(("net", "activation"), [("maxout", "maxout"), *CASES[3:]])
def test_a_compiler_sees_the_whole_network(net, activation):
    """Forward pass and losses are one graph, with masks that are drawn beforehand."""
    made = trainer_of(run_of(net, activation))
    step = made.training_step
    step.begin_epoch(0)
    x, y = made.batches.next()
    step.dropout.seek(0)
    expected, _ = step.compute_loss(x, y)
    step.dropout.seek(0)
    step.draw_masks(x)
    loss, _ = torch.compile(step.compute_loss, backend="eager", fullgraph=True)(x, y)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(("net", "activation"), CASES)
def test_what_draws_inside_is_not_compiled(net, activation):
    run = run_of(net, activation)
    made = Trainer(run, None, CPU, ProcessGroup(), capture=False, compiled=True)
    assert made.training_step.compiled == ((net, activation) not in CASES[1:3])
