"""Training of a run: from its start, or its last checkpoint, to its record."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ...adaptive.quantile_search import NotFiniteError
from ..config.run import Run
from ..models import network_registry
from ..records import checkpoints, run_record
from ..records.collect_env import environment
from ..records.locks import locked_record
from ..records.run_record import Record
from ..records.run_status import DEAD, DIVERGED, FINISHED
from ..runtime.distributed import choose_device, init_process_group
from .callbacks import Callback, CheckpointCallback, Progress, Stopped, progress_callback
from .run_checks import checked
from .trainer import Trainer


def train(
    run: Run,
    records_root: Path | str,
    data_root: Path | str | None = None,
    on_epoch: Callback | None = None,
    on_step: Callback | None = None,
    device: torch.device | str | None = None,
    checkpoint_seconds: float = 30.0,
    capture: bool | None = None,
    compiled: bool | None = None,
    stop: Callable[[], bool] | None = None,
    beside: int = 1,
) -> Record:
    """Trains ``run`` and returns its record.

    A finished run is not trained again. One that was stopped, in whatever way, resumes from its
    last checkpoint and ends with the same numbers as if it had never been stopped. The test data
    are opened once, at the end.

    Args:
        run: What to train.
        records_root: Folder of records; the run's folder is created in it.
        data_root: A folder to search for the data before $SRELU_DATA and the cache.
        on_epoch: Called after every epoch.
        on_step: Called during an epoch, at most twice a second.
        device: Where to train; a GPU by default if there is one.
        checkpoint_seconds: Time between two checkpoints; no result depends on it.
        capture: Whether a step is captured as a CUDA graph; by default where that is possible.
        compiled: Whether torch.compile compiles the network's part of a step; by default on a GPU.
        stop: Called after every step; if true, a checkpoint is saved and `Stopped` is raised. For
            runs of one process.
        beside: How many runs share the device, for the record: it makes their seconds longer.
    """
    if stop is not None and run.world > 1:
        raise ValueError("stop is for runs of one process: end the processes of others instead")
    run, device = checked(run), choose_device(device)
    on_gpu = device.type == "cuda"
    capture = on_gpu and run.world == 1 if capture is None else capture
    compiled = on_gpu if compiled is None else compiled
    group = init_process_group(run.world, device)
    with algorithms(run, device):
        finished = run_record.finished(records_root, run) if group.is_rank_0 else None
        if folder := group.broadcast(finished and finished.folder):
            return run_record.load(folder)
        weights = _starting_weights(records_root, run)
        trainer = Trainer(run, data_root, device, group, capture, compiled)  # may fail: first
        here = environment(device) | ({"beside": beside} if beside > 1 else {})
        with (
            contextlib.closing(trainer.batches),
            locked_record(Path(records_root), run, here, group) as record,
        ):
            if record.result is not None:  # another process has just finished it
                return record
            state = checkpoints.load(record.folder)
            if state is not None:
                trainer.load_state_dict(state)
            elif weights is not None:
                trainer.load_weights(weights)
            trainer.clock.startup = trainer.clock.now
            checkpoint = CheckpointCallback(trainer, record.folder, checkpoint_seconds)
            callbacks: list[Callback] = [checkpoint]
            if group.is_rank_0:
                callbacks.append(progress_callback(trainer.clock, on_step, on_epoch))

            def stop_if_asked(_: Progress) -> None:
                if stop is not None and stop():
                    checkpoint.save()
                    raise Stopped

            callbacks.append(stop_if_asked)
            status = fit(trainer, record.folder, callbacks)
            checkpoint.save()
            if group.is_rank_0:
                _write_result(trainer, record, status)
            group.broadcast(None)  # no process reads the record before it is complete
        return run_record.load(record.folder)


def fit(trainer: Trainer, folder: Path, callbacks: Sequence[Callback] = ()) -> str:
    """Trains to the last epoch, or until the run is dead or has diverged; returns its status.

    Args:
        trainer: What is trained, from where it is.
        folder: The run's record, for the callbacks.
        callbacks: Called in this order after every step, after the last of an epoch when the epoch
            is complete.
    """
    clock = trainer.clock

    def notify() -> None:
        progress = Progress(
            run=trainer.run,
            folder=folder,
            epoch=trainer.epoch,
            share=(trainer.epoch + trainer.step / trainer.steps) / trainer.run.epochs,
            phase=trainer.phase,
            metrics=trainer.history.metrics[-1] if trainer.history.metrics else None,
            ends_epoch=trainer.step == 0,
        )
        for callback in callbacks:
            callback(progress)

    while (status := trainer.status) is None:
        if trainer.phase == "frozen" and trainer.epoch >= trainer.run.freeze:
            try:
                with clock.measure("adapt"):
                    trainer.adapt()
            except NotFiniteError:
                return DIVERGED
        trainer.begin_epoch()
        with clock.measure("startup"):
            trainer.training_step.prepare()
        while trainer.step < trainer.steps:
            with clock.measure("epoch"):
                trainer.train_step()
            if trainer.step < trainer.steps:
                notify()
        with clock.measure("epoch"):
            trainer.synchronize()
        trainer.end_epoch()
        notify()
    return status


def _write_result(trainer: Trainer, record: Record, status: str) -> None:
    """Tests what was trained and writes the result, which makes the run finished."""
    metrics, last = trainer.history.metrics, trainer.history.metrics[-1]
    result: dict[str, Any] = {
        "status": status,
        "test_error": None,
        "test_loss": None,
        "train_loss": last.train_loss if math.isfinite(last.train_loss) else None,
        "train_error": last.train_error,
        "val_error": last.val_error,
        "epochs": last.epoch,
        "images_an_epoch": trainer.steps * record.run.batch,
        "seconds": round(sum(m.seconds for m in metrics), 3),
        "startup_seconds": round(trainer.clock.startup, 3),
        "adapt_seconds": round(trainer.clock.adapt, 3),
    }
    if status != DEAD and math.isfinite(last.train_loss) and trainer.finite:
        tested, predictions, labels = trainer.test()
        if all(math.isfinite(value) for value in tested.values()):
            run_record.write_predictions(record.folder, predictions, labels)
            result |= tested
        else:
            result["status"] = DIVERGED
    layers = [name for name, _ in trainer.net.activations()]
    run_record.write_run(record.folder, record.run, record.environment, result, layers)
    (record.folder / checkpoints.PREVIOUS).unlink(missing_ok=True)


def _starting_weights(root: Path | str, run: Run) -> dict[str, torch.Tensor] | None:
    """The final weights of the run that ``run.start`` names.

    None if it names none, or if the run can be resumed from a checkpoint of its own.
    """
    begun = run_record.unfinished(root, run)
    if not run.start or (begun is not None and checkpoints.load(begun.folder) is not None):
        return None
    found = run_record.with_key(root, run.start)
    ended = (r for r in found if r.result and r.result["status"] == FINISHED)
    state = next((s for r in ended if (s := checkpoints.load(r.folder)) is not None), None)
    if state is None:
        raise ValueError(
            f"this run begins with the weights of run {run.start}, but {root} has no finished "
            "record of it with a checkpoint: train that one first"
        )
    if state["run"]["net"] != run.net:
        raise ValueError(
            f"this run begins with the weights of run {run.start}, which is a "
            f"{state['run']['net']} and not a {run.net}: name a run of the same network"
        )
    return state["net"]


@contextlib.contextmanager
def algorithms(run: Run, device: torch.device) -> Iterator[None]:
    """Sets deterministic algorithms, cuDNN's flags and threads, and restores them afterwards."""
    before, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    wanted, libraries = run.deterministic, contextlib.nullcontext()
    if wanted != before:  # setting it imports the compiler, for seconds
        torch.use_deterministic_algorithms(wanted)
    # Every empty tensor is written in full before it is read: torch need not fill it first.
    filling = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_num_threads(network_registry.network_spec(run.net).threads or threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        if wanted:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for
        libraries = torch.backends.cudnn.flags(
            enabled=True, benchmark=not wanted, deterministic=wanted, allow_tf32=False
        )
    try:
        with libraries:
            yield
    finally:
        if wanted != before:
            torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = filling  # type: ignore[attr-defined]
        torch.set_num_threads(threads)
