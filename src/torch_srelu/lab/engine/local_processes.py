"""Runs side by side on one device: a process for each, as many at a time as one likes.

NIN is too small to fill a large GPU alone. Every run is the same run as alone, bit for bit where it
is deterministic; only its seconds are not.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

from ..._text import counted
from ..config.run import Run
from ..records import run_record
from ..records.run_record import Record, Results
from . import worker

LOGS = "logs"  # folder below the records, for what the processes say
TAIL = 8  # lines that are shown of a process that failed
_PATIENCE = 60.0  # seconds that a process has to write its checkpoint
# How a process ends that was told to: with a checkpoint, or before it could do anything.
_OBEYED = (worker.DONE, worker.STOPPED, -signal.SIGTERM)

Plan = Callable[[Results], list[Run]]


class UnsavedRunsError(RuntimeError):
    """Runs were told to stop, and could not write their checkpoints."""


@dataclass(frozen=True)
class Event:
    """Something happened to a run.

    Attributes:
        run: Which one.
        kind: "started", "progress", "ended" (it has a result), "stopped" (it goes on next time),
            "dropped" (stopped, and the plan does not need it any more) or "failed".
        share: How much of its training is done, in [0, 1].
        epoch: Epochs done.
        loss: Training loss of the last of them.
        record: Of a run that has ended.
        words: The last lines of a process that failed, and where the others are.
    """

    run: Run
    kind: str
    share: float = 0.0
    epoch: int = 0
    loss: float | None = None
    record: Record | None = None
    words: str = ""


@dataclass
class _Worker:
    run: Run
    process: subprocess.Popen[str]
    log: Path
    told: bool = False  # to stop


@dataclass
class _Crew:
    """The processes under way, and what they say."""

    records_root: Path
    data_root: Path | None
    device: str | None
    beside: int
    workers: dict[str, _Worker] = field(default_factory=dict)
    said: Queue[tuple[str, str | None]] = field(default_factory=Queue)  # key, line; None at the end

    def start(self, run: Run) -> None:
        key = run.key()
        log = self.records_root / LOGS / f"{run.dataset}-{run.activation}-s{run.seed}-{key}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        share = str(max(1, (os.cpu_count() or 1) // self.beside))  # of the cores, for its threads
        threads = {"OMP_NUM_THREADS": share, "TORCHINDUCTOR_COMPILE_THREADS": share}
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
            "records": str(self.records_root),
            "data": None if self.data_root is None else str(self.data_root),
            "device": self.device,
            "beside": self.beside,
        }
        assert process.stdin is not None
        assert process.stdout is not None
        # A process that died at once reads nothing; its log says why.
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps(order) + "\n")
        self.workers[key] = _Worker(run, process, log)
        threading.Thread(target=self._listen, args=(key, process.stdout), daemon=True).start()

    def _listen(self, key: str, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self.said.put((key, line))
        self.said.put((key, None))

    def hear(self, seconds: float) -> Event | None:
        """The next thing that happens within so many seconds."""
        try:
            key, line = self.said.get(timeout=max(0.0, seconds))
        except Empty:
            return None
        member = self.workers[key]
        if line is None:
            return self._ended(member)
        told = json.loads(line)
        if "folder" in told:
            return None  # it is about to end
        return Event(member.run, "progress", told["share"], told["epoch"], told["loss"])

    def _ended(self, member: _Worker) -> Event:
        code = member.process.wait()
        del self.workers[member.run.key()]
        record = run_record.finished(self.records_root, member.run)
        if record is not None:
            member.log.unlink(missing_ok=True)
            return Event(member.run, "ended", 1.0, record=record)
        if code == worker.STOPPED or (member.told and code in _OBEYED):
            member.log.unlink(missing_ok=True)
            return Event(member.run, "stopped")
        return Event(member.run, "failed", words=_last_words(member))

    def stop(self, keys: Iterable[str]) -> None:
        """Tells the processes of these runs to stop, once."""
        for key in keys:
            member = self.workers[key]
            if not member.told:
                member.told = True
                member.process.terminate()

    def stop_all(self) -> None:
        """Tells every process to stop; those that do not obey in a minute are ended.

        Raises NotSaved if one ended without its checkpoint.
        """
        self.stop(self.workers)
        patience = time.monotonic() + _PATIENCE
        lost = []
        for member in self.workers.values():
            try:
                code = member.process.wait(max(0.0, patience - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                code = member.process.wait()
            if code in _OBEYED:
                member.log.unlink(missing_ok=True)
            else:
                run = member.run
                lost.append(f"{run.net} {run.activation} seed {run.seed}: {_last_words(member)}")
        if lost:
            many = counted(len(lost), "run")
            raise UnsavedRunsError(
                f"{many} could not be saved and will go on from an earlier point: "
                + "\n".join(lost)
            )


def _last_words(member: _Worker) -> str:
    """How a process that failed has ended, and the last lines of its log."""
    code = member.process.returncode
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    try:
        lines = member.log.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:  # somebody tidied up
        return f"{how}, and its log {member.log} is gone"
    tail = "\n".join(lines[-TAIL:])
    return f"{how}, log in {member.log}\n{tail}".rstrip()


def train_runs(
    plan: Plan,
    records_root: Path | str,
    data_root: Path | str | None = None,
    *,
    known: Results | None = None,
    jobs: int = 1,
    seconds: float | None = None,
    device: str | None = None,
) -> Generator[Event | None]:
    """Trains what ``plan`` asks for, and tells what happens while it does.

    What has a result is not trained again, what was stopped goes on. After every result the plan is
    asked anew: a run that it does not want any more is stopped where it is.

    Args:
        plan: The runs wanted, given the results there are, by key.
        records_root: Folder of records.
        data_root: A folder to search for the data first.
        known: Results from elsewhere, by key; these runs are not trained, unless a run that is
            still to be trained begins with their weights.
        jobs: How many runs at a time.
        seconds: When to stop all of them; their checkpoints are written.
        device: Where to train; a GPU by default if there is one.

    Yields:
        Events; None now and then when nothing has happened for a second.

    Raises:
        NotSaved: If it is closed, or interrupted, and a run could not write its checkpoint.
    """
    root = Path(records_root)
    root.mkdir(parents=True, exist_ok=True)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    results = _results(plan, root, known or {})
    failed: set[str] = set()
    crew = _Crew(root, None if data_root is None else Path(data_root), device, jobs)
    try:
        while True:
            late = time.monotonic() >= deadline
            runs = [run for run in plan(results) if run.key() not in results.keys() | failed]
            needed = {run.key() for run in runs}
            crew.stop(key for key in crew.workers if late or key not in needed)
            for run in runs:
                if run.key() in crew.workers or (run.start and run.start not in results):
                    continue
                if late or len(crew.workers) >= jobs:
                    break
                crew.start(run)
                yield Event(run, "started")
            if not crew.workers:
                return
            event = crew.hear(min(1.0, max(0.05, deadline - time.monotonic())))
            if event is not None and event.record is not None:
                results |= run_record.results([event.record])
            elif event is not None and event.kind == "failed":
                failed.add(event.run.key())
            elif event is not None and event.kind == "stopped" and event.run.key() not in needed:
                event = Event(event.run, "dropped")
            yield event
    finally:
        crew.stop_all()


def _results(plan: Plan, root: Path, known: Results) -> dict[str, Mapping[str, Any]]:
    """The results there are, without those whose runs have to be trained for their weights."""
    own = run_record.results(run_record.find(root))
    there = {**known, **own}
    begun_with = {run.start for run in plan(there) if run.key() not in there}
    return {key: result for key, result in there.items() if key in own or key not in begun_with}
