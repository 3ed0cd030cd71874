"""The paper's other systems as rows: what they are trained with, and that every one can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from official import write_small
from photographs import write_folders

from torch_srelu.lab.config.run import Run, learning_rate
from torch_srelu.lab.data.datasets import DATASETS
from torch_srelu.lab.models import network_registry
from torch_srelu.lab.models.sequential import PoolSpec, max_pool
from torch_srelu.lab.models.sequential_networks import NETWORKS
from torch_srelu.lab.paper.experiments import OWN, required_runs, select_experiments
from torch_srelu.lab.paper.row_recipes import SYSTEMS, is_short
from torch_srelu.lab.records import archives, run_record
from torch_srelu.lab.runtime.distributed import ProcessGroup
from torch_srelu.lab.training.loop import train
from torch_srelu.lab.training.trainer import Trainer

_SYSTEMS = [e.name for e in select_experiments() if e.length == OWN]
RUNS = required_runs(select_experiments([*_SYSTEMS, "apl-neuron"]), {})
# One of each network and activation; what else differs is augmentation and the seed.
KINDS = {f"{run.net}+{run.activation}": run for run in RUNS}
SMALL = {name: run for name, run in KINDS.items() if run.dataset != "imagenette"}
# Networks that are also there for CIFAR-10: these differ in the last layer.
TWINS = {
    name: run
    for name, run in SMALL.items()
    if name.replace("cifar100", "cifar10") in SMALL.keys() - {name}
}


def test_nin_itself_has_max_pooling_and_its_authors_schedule() -> None:
    for condition, first in (("cifar10", 0.1), ("cifar100", 0.02)):
        run = SYSTEMS["nin"](condition, 1)
        pools = [s.pooling for s in NETWORKS[run.net].layers if isinstance(s, PoolSpec)]
        assert pools == [max_pool, max_pool]
        rates = [learning_rate(run, epoch, run.epochs) for epoch in range(run.epochs)]
        parts = [rates.count(rate) for rate in sorted(set(rates), reverse=True)]
        assert parts == [200, 30, 30]
        assert (rates[0], rates[-1]) == pytest.approx((first, first / 100))


def test_lengths_are_as_agreed() -> None:
    short = {(run.net, run.augmentation) for run in RUNS if is_short(run)}
    assert {run.epochs for run in RUNS if is_short(run)} == {60}
    assert short == {
        ("maxout-cifar10", "none"),  # of probout too
        ("maxout-cifar100", "none"),
        ("maxout-cifar10", "flips"),
        ("cnn-cifar10", "none"),
        ("cnn-cifar10", "flips"),
        ("cnn-cifar100", "none"),
        ("cnn-cifar100", "flips"),
        ("tree-cifar100", "none"),
        ("dsn-cifar10", "flips"),
    }
    seeds = {run.seed for run in RUNS if run.dataset != "imagenette"}
    assert seeds == {1}


def test_googlenets_differ_in_the_activation_alone() -> None:
    runs = [run for run in RUNS if run.dataset == "imagenette"]
    assert [(run.activation, run.seed) for run in runs] == [
        (activation, seed) for seed in (1, 2) for activation in ("relu", "prelu", "srelu")
    ]
    assert len({replace(run, activation="relu", freeze=0, seed=1).key() for run in runs}) == 1
    assert [run.freeze for run in runs] == [0, 0, 5] * 2


def rehearsal(run: Run, **changes) -> Run:
    """The run in two steps. To whiten ten images would take longer than to train on them."""
    light = run.preprocessing.replace("gcn+zca", "gcn")
    # Many CPUs have no arithmetic for bfloat16, and take ten times as long for large networks.
    precision = run.precision if run.dataset == "mnist" else "float32"
    return replace(run, epochs=1, batch=4, preprocessing=light, precision=precision, **changes)


def collected(run: Run, data: Path, tmp_path: Path) -> run_record.Record:
    record = train(run, tmp_path / "runs", data, device="cpu")
    archives.collect([record], tmp_path / "results")
    (packed,) = run_record.find(tmp_path / "results")
    assert packed.run == run
    assert packed.result is not None
    assert packed.result["status"] == "finished"
    assert 0 <= packed.result["ema_test_error"] <= 1
    return packed


def small_data(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    count = 2 if run.dataset == "cifar10" else 10  # CIFAR-10 has five files
    monkeypatch.setitem(DATASETS, run.dataset, write_small(root / "data", run.dataset, count))
    return root / "data"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in SMALL if kind not in TWINS])
def test_it_trains_two_steps_and_is_collected(kind, tmp_path, monkeypatch) -> None:
    data = small_data(SMALL[kind], tmp_path, monkeypatch)
    collected(rehearsal(SMALL[kind]), data, tmp_path)


@pytest.mark.parametrize("kind", TWINS)
def test_its_twin_for_more_classes_trains_two_steps(kind, tmp_path, monkeypatch) -> None:
    data = small_data(TWINS[kind], tmp_path, monkeypatch)
    session = Trainer(
        rehearsal(TWINS[kind]), data, torch.device("cpu"), ProcessGroup(), capture=False
    )
    before = [p.detach().clone() for p in session.net.parameters()]
    session.begin_epoch()
    session.training_step.prepare()
    for _ in range(session.steps):
        session.train_step()
    assert session.finite
    assert not all(map(torch.equal, before, session.net.parameters()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_googlenet_trains_adapts_and_is_collected(tmp_path) -> None:
    classes = [f"n{c:02}" for c in range(10)]
    write_folders(tmp_path / "data" / "imagenette", train=1, val=1, classes=classes)
    run = rehearsal(KINDS["googlenet-imagenette+srelu"], freeze=0)  # adapts before its first step
    record = collected(run, tmp_path / "data", tmp_path)
    net = network_registry.network_spec(run.net).build("srelu")
    assert record.parameters().keys() == {name for name, _ in net.activations()}
    assert record.result is not None
    assert record.result["images_an_epoch"] == run.batch * (len(classes) // run.batch)
    assert "test_top5_error" in record.result
