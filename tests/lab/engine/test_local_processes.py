"""Runs in processes of their own: stopped and resumed, replaced, failed; nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from command import process

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.engine import worker
from torch_srelu.lab.engine.local_processes import LOGS, Event, UnsavedRunsError, train_runs
from torch_srelu.lab.paper.experiments import Experiment, required_runs
from torch_srelu.lab.paper.row_recipes import ROWS
from torch_srelu.lab.records import checkpoints, run_record
from torch_srelu.lab.training.loop import train


def kinds(events: list[Event | None]) -> Counter[tuple[str, str, int]]:
    """How often each thing happened to each run, progress aside."""
    happened = [e for e in events if e is not None and e.kind != "progress"]
    return Counter((e.kind, e.run.activation, e.run.seed) for e in happened)


def test_a_process_whose_parent_is_gone_stops_and_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    run, root = recipe("digits", "srelu", 1, epochs=4, ema=0.9), tmp_path / "a"
    order = {"run": run.to_dict(), "records_root": str(root), "device": "cpu", "beside": 1}
    child = process("-m", worker.__name__)
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(json.dumps(order) + "\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["share"] > 0
        child.stdout.close()  # as if the parent were gone
        assert child.wait(timeout=60) == worker.STOPPED
        assert child.stderr.read() == ""
    (stopped,) = run_record.find(root)
    assert stopped.result is None
    assert checkpoints.load(stopped.folder) is not None

    events = list(train_runs(lambda _: [run], root, jobs=2))
    assert kinds(events) == {("started", "srelu", 1): 1, ("ended", "srelu", 1): 1}
    assert list(train_runs(lambda _: [run], root)) == []  # nothing is left to do
    (one,), other = run_record.find(root), train(run, tmp_path / "b")
    assert [m._replace(seconds=0) for m in one.metrics] == [
        m._replace(seconds=0) for m in other.metrics
    ]
    assert torch.equal(one.predictions(), other.predictions())
    assert one.result is not None
    assert other.result is not None
    assert one.result["ema_test_loss"] == other.result["ema_test_loss"]
    assert one.environment["beside"] == 2
    assert list((root / LOGS).iterdir()) == []


def dying_at_first(activation: str, condition: str, seed: int, *_: object) -> Run:
    """ReLU cannot learn at seed 1, in many small steps; the others take long there."""
    dead = {"lr": 0.0, "batch": 4} if seed == 1 and activation == "relu" else {}
    return recipe(condition, activation, seed, epochs=500 if seed == 1 else 2, **dead)


def test_a_dead_seed_is_replaced_and_its_rivals_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("relu", "prelu"):
        monkeypatch.setitem(ROWS, name, partial(dying_at_first, name))
    experiment = Experiment("an experiment", "digits", ("relu", "prelu"), num_seeds=1)
    known = {
        dying_at_first("prelu", "digits", 2).key(): {"status": "finished"}
    }  # needs no training
    plan = partial(required_runs, [experiment])
    events = list(train_runs(plan, tmp_path, known=known, jobs=2))
    assert kinds(events) == {
        ("started", "relu", 1): 1,
        ("started", "prelu", 1): 1,
        ("ended", "relu", 1): 1,
        ("dropped", "prelu", 1): 1,
        ("started", "relu", 2): 1,
        ("ended", "relu", 2): 1,
    }
    found = run_record.find(tmp_path)
    assert experiment.seeds(run_record.results(found)) == ((2,), (1,))
    (dropped,) = (r for r in found if r.result is None)  # stopped, not lost
    assert checkpoints.load(dropped.folder) is not None


def test_without_time_nothing_is_started(tmp_path: Path) -> None:
    run = recipe("digits", "relu", 1)
    assert list(train_runs(lambda _: [run], tmp_path, seconds=0)) == []
    assert run_record.find(tmp_path) == []


@pytest.mark.slow
def test_one_fails_one_waits_for_another_and_all_are_reported(tmp_path: Path) -> None:
    failing = recipe("mnist", "relu", 1)  # whose data are not there
    base = recipe("digits", "lrelu", 1, epochs=2, options={"slope": 0.2})
    further = recipe("digits", "srelu", 1, epochs=1, freeze=0, lr=0.0, start=base.key())
    plan = [failing, further, base]
    known = {base.key(): {"status": "finished"}}  # elsewhere: without the weights that are needed
    events = list(train_runs(lambda _: plan, tmp_path, tmp_path, known=known, jobs=2))
    happened = [e for e in events if e is not None and e.kind != "progress"]
    order = [(e.kind, e.run.activation) for e in happened if e.run != failing]
    assert order == [
        ("started", "lrelu"),
        ("ended", "lrelu"),
        ("started", "srelu"),
        ("ended", "srelu"),
    ]
    first, second = (run_record.finished(tmp_path, run) for run in (base, further))
    assert first is not None
    assert second is not None
    # A new SReLU of slope 0.2 is this leaky ReLU, and at rate 0 nothing was learned.
    assert torch.equal(first.predictions(), second.predictions())
    started, failed = (e for e in happened if e.run == failing)
    assert (started.kind, failed.kind) == ("started", "failed")
    assert "srelu data get mnist" in failed.words
    (log,) = (tmp_path / LOGS).iterdir()  # kept whole, of this one alone
    assert "Traceback" in log.read_text()
    assert str(log) in failed.words


def remove_records(root: Path) -> None:
    """So that the processes that train them cannot write."""
    for record in run_record.find(root):
        shutil.rmtree(record.folder)


def test_a_run_that_cannot_be_saved_when_it_is_stopped_has_failed(tmp_path: Path) -> None:
    plan, happened = [recipe("digits", "relu", 1, epochs=5000)], []
    for event in train_runs(lambda _: plan, tmp_path):
        if event is not None and event.kind == "progress" and plan:
            remove_records(tmp_path)
            plan.clear()  # which stops it
        elif event is not None and event.kind != "progress":
            happened.append(event)
    started, failed = happened
    assert (started.kind, failed.kind) == ("started", "failed")
    assert "FileNotFoundError" in failed.words
    assert len(list((tmp_path / LOGS).iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("saved", [True, False])
def test_closing_raises_if_a_run_could_not_be_saved(tmp_path: Path, saved: bool) -> None:
    run = recipe("digits", "relu", 1, epochs=5000)
    events = train_runs(lambda _: [run], tmp_path)
    assert any(event is not None and event.kind == "progress" for event in events)
    if saved:
        events.close()
        (record,) = run_record.find(tmp_path)
        assert checkpoints.load(record.folder) is not None
        assert list((tmp_path / LOGS).iterdir()) == []
        return
    remove_records(tmp_path)
    with pytest.raises(
        UnsavedRunsError, match=r"1 run could not be saved(.|\n)*relu seed 1: exit code 1"
    ):
        events.close()


def test_a_run_that_fails_when_its_log_is_gone_is_reported(tmp_path: Path) -> None:
    events = []
    for event in train_runs(lambda _: [recipe("mnist", "relu", 1)], tmp_path, tmp_path):
        if event is not None:
            events.append(event)
            shutil.rmtree(tmp_path / LOGS, ignore_errors=True)
    assert [event.kind for event in events] == ["started", "failed"]
    assert "is gone" in events[-1].words
