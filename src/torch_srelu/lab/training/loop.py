"""Training a run from start, or from where it was stopped, to its record."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ...adaptive.quantile_search import NotFiniteError
from ..config.run import Run
from ..data.datasets import dataset
from ..models import network_registry
from ..records import checkpoints, run_record
from ..records.collect_env import environment
from ..records.locks import held_record
from ..records.run_record import Record
from ..records.run_status import DEAD, DIVERGED, FINISHED, chance, judge
from ..runtime.distributed import choose_device, init_process_group
from .callbacks import Callback, Watch
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

    A run that is finished is not trained again. One that was stopped, in whatever way, goes on from
    its last checkpoint and ends with the same numbers as if it had never been stopped. The test
    data are opened once, at the end.

    Args:
        run: What to train.
        records_root: Folder of records; the run's folder is made in it.
        data_root: A folder to search for the data before $SRELU_DATA and the cache.
        on_epoch: Called after every epoch.
        on_step: Called during an epoch, at most twice a second.
        device: Where to train; a GPU by default if there is one.
        checkpoint_seconds: Time between two checkpoints; no result depends on it.
        capture: Whether a step becomes a CUDA graph; by default where that is possible.
        compiled: Whether torch.compile makes the network's part of a step; by default on a GPU.
        stop: Asked after every step; if it says so, the run is checkpointed there and `Stopped` is
            raised. For runs of one process.
        beside: How many runs share the device, for the record: their seconds are not those of a
            run alone.
    """
    if stop is not None and run.world > 1:
        raise ValueError("stop is for runs of one process: end a team by ending its processes")
    device = choose_device(device)
    if capture is None:
        capture = device.type == "cuda" and run.world == 1
    if compiled is None:
        compiled = device.type == "cuda"
    crew = init_process_group(run.world, device)
    with algorithms(run, device):
        done = crew.broadcast(_finished_folder(records_root, run) if crew.is_rank_0 else None)
        if done is not None:
            return run_record.load(done)
        began = time.monotonic()
        weights = _starting_weights(records_root, run)
        session = Trainer(run, data_root, device, crew, capture, compiled)  # may fail: first
        here = environment(device) | ({"beside": beside} if beside > 1 else {})
        with (
            contextlib.closing(session),
            held_record(Path(records_root), run, here, crew) as record,
        ):
            if record.result is not None:  # another process has just finished it
                return record
            state = checkpoints.load(record.folder)
            if state is not None:
                session.load_state_dict(state)
            elif weights is not None:
                session.begin_with(weights)
            startup = time.monotonic() - began
            watch = Watch(session, record, on_epoch, on_step, checkpoint_seconds, stop)
            status = _train(session, watch)
            watch.save()
            _finish(session, record, status, startup + session.training_step.preparing)
            crew.broadcast(None)  # nobody reads the record before it is complete
        return run_record.load(record.folder)


def _train(session: Trainer, watch: Watch) -> str:
    """Trains to the end, or to where it makes no sense to go on; returns the status."""
    run = session.run
    guessing, dead_after = (
        chance(dataset(run.dataset).classes),
        network_registry.plan(run.net).dead_after,
    )

    def status() -> str | None:
        if not session.finite:  # the loss of the last step was that of the weights before it
            return DIVERGED
        return judge(session.history.metrics, run.epochs, guessing, dead_after)

    while (found := status()) is None:
        try:
            session.train_epoch(watch.step)
        except NotFiniteError:  # what adapt would have measured
            return DIVERGED
        watch.epoch()
    return found


def _finish(session: Trainer, record: Record, status: str, startup: float) -> None:
    """Tests what was trained and writes the result, which makes the run finished."""
    if not session.team.is_rank_0:
        return
    last = session.history.metrics[-1]
    result: dict[str, Any] = {
        "status": status,
        "test_error": None,
        "test_loss": None,
        "train_loss": last.train_loss if math.isfinite(last.train_loss) else None,
        "train_error": last.train_error,
        "val_error": last.val_error,
        "epochs": last.epoch,
        "images_an_epoch": session.steps * record.run.batch,
        "seconds": round(sum(m.seconds for m in session.history.metrics), 3),
        "startup_seconds": round(startup, 3),
        "adapt_seconds": round(session.adapt_seconds, 3),
    }
    if status != DEAD and math.isfinite(last.train_loss) and session.finite:
        tested, predictions, labels = session.test()
        if all(math.isfinite(value) for value in tested.values()):
            run_record.write_predictions(record.folder, predictions, labels)
            result |= tested
        else:
            result["status"] = DIVERGED
    run_record.write_run(record.folder, record.run, record.environment, result)
    checkpoints.drop_previous(record.folder)


def _starting_weights(root: Path | str, run: Run) -> dict[str, torch.Tensor] | None:
    """What the run that ``run.start`` names ended with; None if there is no such start.

    Nor is it needed where the run has a checkpoint of its own.
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


def _finished_folder(root: Path | str, run: Run) -> Path | None:
    record = run_record.finished(root, run)
    return record.folder if record else None


@contextlib.contextmanager
def algorithms(run: Run, device: torch.device) -> Iterator[None]:
    """Chooses how the libraries compute, and puts back what was chosen before."""
    before, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    if run.deterministic and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for
    if run.deterministic != before:  # to say it again would import the compiler, for seconds
        torch.use_deterministic_algorithms(run.deterministic)
    # Every tensor that is made empty is filled in full: torch would fill it once more, to be sure.
    filling = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.set_num_threads(network_registry.plan(run.net).threads or threads)
    libraries = contextlib.nullcontext()
    if device.type == "cuda":
        torch.cuda.set_device(device)
        libraries = torch.backends.cudnn.flags(
            enabled=True,
            benchmark=not run.deterministic,
            deterministic=run.deterministic,
            allow_tf32=False,
        )
    try:
        with libraries:
            yield
    finally:
        if run.deterministic != before:
            torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = filling  # type: ignore[attr-defined]
        torch.set_num_threads(threads)
