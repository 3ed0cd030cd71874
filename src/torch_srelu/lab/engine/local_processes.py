"""Several runs at a time on one device, each in a process of its own.

NIN is too small to fill a large GPU alone. Every run is the same run as alone, bit for bit where it
is deterministic; only its seconds are not.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Generator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import IO

from ..._text import counted
from ..config.run import Run
from ..records import run_record
from ..records.run_record import Results
from . import worker
from .scheduling import Event, RunPlan, UnsavedRunsError, schedule

LOGS = "logs"  # folder below the records, for the standard errors of the processes
TAIL = 8  # lines that are shown of a process that failed
_STOP_SECONDS = 60.0  # that a process has to write its checkpoint
# Exit codes after SIGTERM: with a checkpoint, or before there was anything to save.
_STOPPED = (worker.DONE, worker.STOPPED, -signal.SIGTERM)


@dataclass
class _Worker:
    """A process that trains a run."""

    run: Run
    process: subprocess.Popen[str]
    log: Path
    stopping: bool = False

    def stop(self) -> None:
        if not self.stopping:
            self.stopping = True
            self.process.terminate()

    def failure(self) -> str:
        """How the process has ended, and the last lines of its log."""
        code = self.process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:  # it was removed
            return f"{how}, and its log {self.log} is gone"
        tail = "\n".join(lines[-TAIL:])
        return f"{how}, log in {self.log}\n{tail}".rstrip()


class LocalProcesses:
    """An `Engine` whose runs are local processes that share a device.

    Args:
        records_root: Folder of records.
        data_root: A folder to search for the data first.
        device: Where to train; a GPU by default if there is one.
        jobs: How many runs at a time.
    """

    def __init__(
        self, records_root: Path, data_root: Path | str | None, device: str | None, jobs: int
    ) -> None:
        self.records_root, self.data_root = records_root, data_root
        self.device, self.jobs = device, jobs
        self._workers: dict[str, _Worker] = {}
        self._output: Queue[tuple[str, str | None]] = Queue()  # key and line; None at the end

    @property
    def running(self) -> Collection[str]:
        return list(self._workers)

    def start(self, run: Run) -> None:
        key = run.key()
        log = self.records_root / LOGS / f"{run.dataset}-{run.activation}-s{run.seed}-{key}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        cores = str(max(1, (os.cpu_count() or 1) // self.jobs))
        threads = {"OMP_NUM_THREADS": cores, "TORCHINDUCTOR_COMPILE_THREADS": cores}
        with open(log, "wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", worker.__name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**threads, **os.environ},
                start_new_session=True,  # Ctrl-C reaches this process, which then stops the others
            )
        order = {
            "run": run.to_dict(),
            "records_root": str(self.records_root),
            "data_root": self.data_root and str(self.data_root),
            "device": self.device,
            "beside": self.jobs,
        }
        assert process.stdin is not None
        assert process.stdout is not None
        # A process that died at once reads nothing; its log says why.
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps(order) + "\n")
        self._workers[key] = _Worker(run, process, log)
        threading.Thread(target=self._read, args=(key, process.stdout), daemon=True).start()

    def _read(self, key: str, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self._output.put((key, line))
        self._output.put((key, None))

    def stop(self, key: str) -> None:
        self._workers[key].stop()

    def wait(self, seconds: float) -> Event | None:
        try:
            key, line = self._output.get(timeout=max(0.0, seconds))
        except Empty:
            return None
        started = self._workers[key]
        if line is not None:
            return Event(started.run, "progress", **json.loads(line))
        code = started.process.wait()
        del self._workers[key]
        record = run_record.finished(self.records_root, started.run)
        stopped = code == worker.STOPPED or (started.stopping and code in _STOPPED)
        if record is None and not stopped:
            return Event(started.run, "failed", words=started.failure())
        started.log.unlink(missing_ok=True)
        if record is None:
            return Event(started.run, "stopped")
        return Event(started.run, "ended", 1.0, record=record)

    def close(self) -> None:
        """Stops every process; those that have not ended after a minute are killed."""
        for started in self._workers.values():
            started.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        unsaved: list[str] = []
        for started in self._workers.values():
            try:
                code = started.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                started.process.kill()
                code = started.process.wait()
            if code in _STOPPED:
                started.log.unlink(missing_ok=True)
            else:
                run = started.run
                unsaved.append(f"{run.net} {run.activation} seed {run.seed}: {started.failure()}")
        if unsaved:
            many, why = counted(len(unsaved), "run"), "\n".join(unsaved)
            raise UnsavedRunsError(
                f"{many} could not be saved and will go on from an earlier point: {why}"
            )


def train_runs(
    plan: RunPlan,
    records_root: Path | str,
    data_root: Path | str | None = None,
    *,
    known: Results | None = None,
    jobs: int = 1,
    seconds: float | None = None,
    device: str | None = None,
) -> Generator[Event | None]:
    """Trains what ``plan`` asks for in local processes, and yields what happens; see `schedule`.

    What has a result is not trained again; what was stopped is resumed.

    Args:
        plan: The runs wanted, given the results there are, by key.
        records_root: Folder of records.
        data_root: A folder to search for the data first.
        known: Results from elsewhere, by key; these runs are not trained, unless a run that is
            still to be trained begins with their weights.
        jobs: How many runs at a time.
        seconds: When to stop all of them; their checkpoints are written.
        device: Where to train; a GPU by default if there is one.

    Raises:
        UnsavedRunsError: If it is closed, or interrupted, and a run could not write its checkpoint.
    """
    root = Path(records_root)
    root.mkdir(parents=True, exist_ok=True)
    own = run_record.results(run_record.find(root))
    results = {**(known or {}), **own}
    starts = {run.start for run in plan(results) if run.key() not in results}
    for key in starts & (results.keys() - own.keys()):
        del results[key]  # trained again: its weights are needed
    engine = LocalProcesses(root, data_root, device, jobs)
    yield from schedule(plan, engine, results, seconds)
