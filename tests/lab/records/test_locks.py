"""Of several processes that train the same run one does, and once."""

import contextlib
import multiprocessing as mp
import zipfile
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.records import archives, run_record
from torch_srelu.lab.records.history import History, Metrics
from torch_srelu.lab.records.locks import LOCK, RecordLockedError, locked_record
from torch_srelu.lab.runtime.distributed import ProcessGroup
from torch_srelu.lab.training.callbacks import Progress
from torch_srelu.lab.training.loop import train
from torch_srelu.lab.training.trainer import Trainer

RUN = recipe("digits", "relu", 1, epochs=1, batch=64)
ROUNDS = 40
PROCESSES = mp.get_context("spawn")  # a forked child would inherit locked thread pools


def elsewhere(root: Path) -> None:
    """Trains the run in another process, to its end."""
    process = PROCESSES.Process(target=train, args=(RUN, root))
    process.start()
    process.join(timeout=120)
    assert process.exitcode == 0


def trained(_: Progress) -> None:
    raise AssertionError("trained again")


def test_a_run_that_ends_while_another_process_gets_ready_is_not_trained_again(
    tmp_path, monkeypatch
):
    def while_loading(*args):
        elsewhere(tmp_path)
        return Trainer(*args)

    run_record.create(tmp_path, RUN, {})
    monkeypatch.setattr("torch_srelu.lab.training.loop.Trainer", while_loading)
    record = train(RUN, tmp_path, on_epoch=trained)
    assert record.result is not None
    assert [found.folder for found in run_record.find(tmp_path)] == [record.folder]


def test_a_run_that_ends_just_before_its_record_is_taken_is_not_trained_again(
    tmp_path, monkeypatch
):
    """The record was read as unfinished, and was free when it was asked for."""
    ask = run_record.finished
    answers = []
    result = {"status": "finished", "test_error": 0.1, "epochs": 1, "seconds": 1.0}

    def finished(root, run):
        answers.append(ask(root, run))
        if len(answers) == 2:
            run_record.write_run(begun.folder, RUN, {}, result)
        return answers[-1]

    begun, epoch = run_record.create(tmp_path, RUN, {}), History()
    epoch.add(Metrics(1, 0.1, 2.0, 0.5, 1.0, 0.1, None, "plain"), {}, {}, {}, {})
    run_record.write_history(begun.folder, epoch)
    monkeypatch.setattr(run_record, "finished", finished)
    record = train(RUN, tmp_path, on_epoch=trained)
    assert answers == [None, None]
    assert record.result == result


def test_locks_disturb_neither_records_nor_archives(tmp_path):
    record = train(RUN, tmp_path / "runs")
    assert (tmp_path / "runs" / LOCK).is_file()
    assert (record.folder / LOCK).is_file()
    assert [found.folder for found in run_record.find(tmp_path / "runs")] == [record.folder]
    ((packed,), _) = archives.collect([record], tmp_path / "results")
    assert LOCK not in zipfile.ZipFile(packed.folder).namelist()
    assert not (tmp_path / "results" / LOCK).exists()


def test_what_is_finished_is_read_without_a_lock(tmp_path):
    """So that folders that may only be read can be."""
    record = train(RUN, tmp_path)
    for folder in (tmp_path, record.folder):
        (folder / LOCK).unlink()
    assert train(RUN, tmp_path, on_epoch=trained).folder == record.folder
    assert [found.folder for found in run_record.find(tmp_path)] == [record.folder]
    assert not list(tmp_path.rglob(LOCK))


def test_two_processes_that_start_together_do_not_train_the_same_run(tmp_path):
    barrier, outcomes = PROCESSES.Barrier(2), PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=_begin_together, args=(tmp_path, barrier, outcomes))
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    seen = [outcomes.get(timeout=120) for _ in range(2 * ROUNDS)]
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0]
    pairs = [sorted(what for which, what in seen if which == round) for round in range(ROUNDS)]
    assert pairs == [["RecordLockedError", "opened"]] * ROUNDS
    assert len(run_record.find(tmp_path)) == ROUNDS


def _begin_together(root: Path, barrier: Barrier, outcomes: Queue) -> None:
    for round in range(ROUNDS):
        run = recipe("digits", "relu", seed=round)
        barrier.wait(timeout=60)
        with contextlib.ExitStack() as opened:
            try:
                opened.enter_context(locked_record(root, run, {}, ProcessGroup()))
                outcomes.put((round, "opened"))
            except (RecordLockedError, OSError) as error:
                outcomes.put((round, type(error).__name__))
            barrier.wait(timeout=60)
