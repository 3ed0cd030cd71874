"""Training: what is learned, what is recorded, and that stopping changes nothing."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from killing import RUN as INTERRUPTED

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.data.datasets import DataError
from torch_srelu.lab.data.tensors import load
from torch_srelu.lab.models import network_registry
from torch_srelu.lab.records import checkpoints, run_record
from torch_srelu.lab.records.checkpoints import NAME, PREVIOUS, CheckpointWarning
from torch_srelu.lab.records.locks import LOCK
from torch_srelu.lab.records.run_record import Record
from torch_srelu.lab.training import pipeline
from torch_srelu.lab.training.callbacks import Progress, Stopped
from torch_srelu.lab.training.loop import train

HERE = Path(__file__).parents[1]


def tiny(activation: str = "srelu", **changes):
    fields = {"epochs": 3, "batch": 64} | changes
    return recipe("digits", activation, 1, **fields)


def contents(record: Record) -> dict:
    """All of a record but the clock: what must be equal bit for bit."""
    assert record.result is not None
    state = checkpoints.load(record.folder)
    assert state is not None
    inputs = record.inputs()
    return {
        "metrics": [m._replace(seconds=0.0) for m in record.metrics],
        "result": {k: v for k, v in record.result.items() if "seconds" not in k},
        "tensors": {
            **{f"net/{k}": v for k, v in state["net"].items()},
            **{f"momentum/{i}": v for i, v in enumerate(state["momentum"])},
            **{f"averaged/{i}": v for i, v in enumerate(state["averaged"])},
            **{f"parameters/{k}": v for k, v in record.parameters().items()},
            **{f"quantiles/{k}": v for k, v in inputs.quantiles.items()},
            **{f"magnitude/{k}": v for k, v in inputs.magnitude.items()},
            "predictions": record.predictions(),
            "labels": record.labels(),
        },
        "adaptive": state["adaptive"],
    }


def assert_equal(one: Record, other: Record) -> None:
    a, b = contents(one), contents(other)
    tensors_a, tensors_b = a.pop("tensors"), b.pop("tensors")
    assert a == b
    assert tensors_a.keys() == tensors_b.keys()
    for name, tensor in tensors_a.items():
        assert torch.equal(tensor, tensors_b[name]), name


class Stop(Exception):
    """Ends a training where a test wants it."""


def stop_at(share: float):
    def stop(progress: Progress) -> None:
        if progress.share >= share:
            raise Stop

    return stop


def test_a_run_learns_and_records_everything(tmp_path):
    seen: list[Progress] = []
    run = tiny(epochs=8, batch=32, freeze=2, validation=0.2, ema=0.95)
    record = train(run, tmp_path, on_epoch=seen.append)
    result, test = record.result, load("digits", "test")
    assert result is not None
    assert result["status"] == "finished"
    assert result["test_error"] < 0.3
    assert torch.equal(record.labels(), test.labels)
    assert result["test_error"] == (record.predictions() != test.labels).double().mean().item()
    assert 0 <= result["ema_test_error"] < 0.9
    assert [m.epoch for m in record.metrics] == list(range(1, 9))
    assert [m.phase for m in record.metrics] == ["frozen"] * 2 + ["thawed"] * 6
    assert record.metrics[-1].train_loss < record.metrics[0].train_loss
    assert all(m.val_error is not None and m.grad_norm > 0 for m in record.metrics)
    for layer, values in record.parameters().items():
        assert values.shape[:2] == (8, 4)
        assert torch.equal(values[0], values[1]), layer  # frozen
        assert not torch.equal(values[1], values[2]), layer
    assert set(record.inputs().quantiles) == set(record.parameters())
    assert [p.epoch for p in seen] == list(range(1, 9))
    assert seen[-1].share == 1
    assert seen[-1].metrics == record.metrics[-1]
    assert run_record.finished(tmp_path, run) is not None


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = train(tiny("relu", epochs=1), tmp_path)
    before = {p: p.stat().st_mtime_ns for p in first.folder.iterdir()}

    def trained(_: Progress) -> None:
        raise AssertionError("trained again")

    assert train(tiny("relu", epochs=1), tmp_path, on_epoch=trained).folder == first.folder
    assert {p: p.stat().st_mtime_ns for p in first.folder.iterdir()} == before


def test_test_data_are_opened_once_at_the_end(tmp_path, monkeypatch):
    opened: list[str] = []

    def recorded(name, part, root=None):
        opened.append(part)
        return load(name, part, root)

    monkeypatch.setattr(pipeline, "load", recorded)
    train(tiny("relu", validation=0.2), tmp_path, on_epoch=lambda _: opened.append("epoch"))
    assert opened == ["train", "epoch", "epoch", "epoch", "test"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A run that was never stopped."""
    return train(INTERRUPTED, tmp_path_factory.mktemp("whole"), checkpoint_seconds=0.0)


@pytest.mark.parametrize("share", [0.2, 1 / 3, 0.5, 0.95])  # 1/3 is where the freeze ends
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, share, monkeypatch, whole):
    monkeypatch.setattr("torch_srelu.lab.training.callbacks.PROGRESS_SECONDS", 0.0)
    run = INTERRUPTED
    stop = stop_at(share)
    with pytest.raises(Stop):
        train(run, tmp_path / "cut", on_epoch=stop, on_step=stop, checkpoint_seconds=0.0)
    assert len(run_record.find(tmp_path / "cut")) == 1
    went_on: list[Progress] = []
    record = train(run, tmp_path / "cut", on_step=went_on.append)
    assert went_on[0].share >= share - 0.1
    assert len(run_record.find(tmp_path / "cut")) == 1
    assert_equal(record, whole)


def test_told_to_stop_it_stops_at_that_step_with_a_checkpoint(tmp_path, whole):
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 20  # of 3 epochs of 14 steps

    with pytest.raises(Stopped):
        train(INTERRUPTED, tmp_path, stop=stop)
    (record,) = run_record.find(tmp_path)
    state = checkpoints.load(record.folder)
    assert state is not None
    steps = len(load("digits", "train").labels) * 0.8 // INTERRUPTED.batch
    assert state["epoch"] * steps + state["step"] == 20
    # the format of checkpoints: one that another version wrote has the same
    keys = {"run", "epoch", "step", "seconds", "adapt_seconds", "totals", "net", "momentum"}
    assert state.keys() == keys | {"averaged", "adaptive", "history"}
    assert_equal(train(INTERRUPTED, tmp_path), whole)


def test_a_run_begins_with_the_weights_of_another(tmp_path):
    base = train(tiny("lrelu", epochs=1, options={"slope": 0.2}, ema=0.5), tmp_path)
    ended = checkpoints.load(base.folder)
    run = tiny(epochs=1, freeze=0, lr=0.0, ema=0.5, start=base.run.key())
    state = checkpoints.load(train(run, tmp_path).folder)
    assert ended is not None
    assert state is not None
    averages = dict(zip(state["net"], state["averaged"], strict=True))
    for name, weight in ended["net"].items():
        assert torch.equal(state["net"][name], weight)
        assert torch.equal(averages[name], weight)  # of what it began with: nothing was learned
    dead = train(tiny("relu", lr=0.0, epochs=5), tmp_path)
    for start in ("0123456789", dead.run.key()):
        with pytest.raises(ValueError, match="no finished record of it with a checkpoint"):
            train(tiny(start=start), tmp_path)


def test_once_begun_it_needs_the_other_run_no_more(tmp_path):
    base = train(tiny("lrelu", epochs=1, options={"slope": 0.2}), tmp_path)
    run = tiny(epochs=2, freeze=0, start=base.run.key())
    with pytest.raises(Stopped):
        train(run, tmp_path, stop=lambda: True)
    shutil.rmtree(base.folder)
    result = train(run, tmp_path).result
    assert result is not None
    assert result["status"] == "finished"


def test_killed_at_ten_moments_the_record_is_the_same(tmp_path, whole):
    command = [sys.executable, str(HERE / "killing.py"), str(tmp_path), "10"]
    subprocess.run(command, check=True, timeout=120)
    (record,) = run_record.find(tmp_path)
    assert_equal(record, whole)
    assert [p.name for p in record.folder.glob(".*")] == [LOCK]


def test_a_damaged_checkpoint_costs_time_only(tmp_path, whole):
    run = INTERRUPTED
    with pytest.raises(Stop):
        train(run, tmp_path / "cut", on_epoch=stop_at(0.6), checkpoint_seconds=0.0)
    (record,) = run_record.find(tmp_path / "cut")
    path = record.folder / NAME
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.warns(CheckpointWarning, match=f"going on from {PREVIOUS}"):
        record = train(run, tmp_path / "cut")
    assert_equal(record, whole)


def test_a_checkpoint_from_before_a_field_was_added_is_gone_on_from(tmp_path):
    """As its record is read: what it lacks has its default."""
    with pytest.raises(Stop):
        train(tiny("relu"), tmp_path, on_epoch=stop_at(0.3), checkpoint_seconds=0.0)
    (record,) = run_record.find(tmp_path)
    state = checkpoints.load(record.folder)
    assert state is not None
    del state["run"]["start"], state["run"]["ema"]
    checkpoints.save(record.folder, state)
    assert train(tiny("relu"), tmp_path).folder == record.folder


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    with pytest.raises(Stop):
        train(tiny("relu"), tmp_path / "a", on_epoch=stop_at(0.3), checkpoint_seconds=0.0)
    with pytest.raises(Stop):
        train(tiny("prelu"), tmp_path / "b", on_epoch=stop_at(0.3), checkpoint_seconds=0.0)
    (one,), (other,) = run_record.find(tmp_path / "a"), run_record.find(tmp_path / "b")
    (one.folder / NAME).write_bytes((other.folder / NAME).read_bytes())
    with pytest.raises(ValueError, match="belongs to another run"):
        train(tiny("relu"), tmp_path / "a")


def test_two_trainings_of_the_same_run_at_once_are_refused(tmp_path):
    def again(_: Progress) -> None:
        train(tiny("relu"), tmp_path)

    with pytest.raises(RuntimeError, match="another process is training this run"):
        train(tiny("relu"), tmp_path, on_epoch=again)


@pytest.mark.parametrize("patience", [2, 3])
def test_a_dead_start_is_recorded_and_not_tested(patience, tmp_path, monkeypatch):
    run = tiny("relu", lr=0.0, epochs=5)
    plan = replace(network_registry.network_spec(run.net), dead_after=patience)
    monkeypatch.setitem(network_registry.NETWORKS, run.net, plan)
    record = train(run, tmp_path)
    assert record.result is not None
    assert (record.result["status"], record.result["epochs"]) == ("dead", patience)
    assert record.result["test_error"] is None
    assert not (record.folder / "predictions.gz").exists()


def test_divergence_is_recorded(tmp_path):
    record = train(tiny("prelu", lr=1e6, epochs=5), tmp_path)
    assert record.result is not None
    assert record.result["status"] == "diverged"
    assert record.result["train_loss"] is None
    assert record.result["test_error"] is None


@pytest.mark.parametrize(("activation", "epochs"), [("relu", 1), ("srelu", 3)])
def test_weights_that_blow_up_in_the_last_step_are_divergence(tmp_path, activation, epochs):
    """The loss of that step was still a number: it belongs to the weights before."""
    freeze = {"freeze": 1} if activation == "srelu" else {}
    run = recipe("digits", activation, seed=1, epochs=epochs, batch=1198, lr=1e25, **freeze)
    record = train(run, tmp_path)
    assert record.result is not None
    assert record.result["status"] == "diverged"
    assert record.result["test_error"] is None


def test_an_unusable_device_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown device 'tpu': choose cpu, cuda or cuda:0"):
        train(tiny(), tmp_path, device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch sees no CUDA device"):
            train(tiny(), tmp_path, device="cuda")


def test_a_run_that_goes_on_elsewhere_names_both_places(tmp_path, monkeypatch):
    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny(), tmp_path, on_epoch=stop, checkpoint_seconds=0)
    (record,) = run_record.find(tmp_path)
    elsewhere = {**record.environment, "hardware": "another machine"}
    run_record.write_run(record.folder, record.run, elsewhere, result=None)
    done = train(tiny(), tmp_path)
    assert done.environment["hardware"] == record.environment["hardware"]
    assert done.environment["before"] == [elsewhere]


def test_a_place_where_a_run_was_stopped_again_is_named_too(tmp_path, monkeypatch):
    def stop(progress):
        raise KeyboardInterrupt

    first, second, third = places = [
        {"hardware": name, "started": when} for when, name in enumerate(["a", "b", "a"])
    ]
    for place in [*places, {**third, "started": 3}]:  # the last only later, not elsewhere
        monkeypatch.setattr(
            "torch_srelu.lab.training.loop.environment", lambda device, here=place: dict(here)
        )
        with pytest.raises(KeyboardInterrupt):
            train(tiny(epochs=5), tmp_path, on_epoch=stop, checkpoint_seconds=0)
    done = train(tiny(epochs=5), tmp_path)
    assert done.environment == {**third, "before": [first, second]}


def test_fixed_parameters_stay_and_the_others_learn(tmp_path):
    record = train(tiny(freeze=1, fixed=("t_r", "a_r")), tmp_path)
    for layer, values in record.parameters().items():
        t_r, a_r, t_l, a_l = values.unbind(1)
        assert torch.equal(t_r[1], t_r[2]), layer
        assert torch.equal(a_r, torch.ones_like(a_r)), layer
        assert not torch.equal(t_l[1], t_l[2]), layer
        assert not torch.equal(a_l[1], a_l[2]), layer


def test_manual_srelu_is_never_frozen(tmp_path):
    record = train(tiny("srelu-manual", epochs=2, options={"t_r": 2.0}), tmp_path)
    assert {m.phase for m in record.metrics} == {"plain"}
    assert all(not torch.equal(v[0], v[1]) for v in record.parameters().values())


def test_what_was_chosen_for_torch_is_put_back(tmp_path):
    def chosen() -> tuple[bool, int]:
        return torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()

    torch.set_num_threads(2)
    seen: list[tuple[bool, int]] = []
    run = tiny("relu", epochs=1, deterministic=True)
    record = train(run, tmp_path, on_epoch=lambda _: seen.append(chosen()))
    assert seen == [(True, 1)]
    assert record.environment["threads"] == 1
    assert chosen() == (False, 2)


def test_missing_data_leave_no_record(tmp_path):
    with pytest.raises(DataError, match="srelu data get mnist"):
        train(recipe("mnist", "relu", 1), tmp_path / "records", data_root=tmp_path)
    assert not (tmp_path / "records").exists()


def test_a_batch_larger_than_the_data_is_refused(tmp_path):
    with pytest.raises(ValueError, match="more than the 1,198 training images"):
        train(tiny("relu", batch=2000), tmp_path)
