"""Records that one process locks while it trains them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config.run import Run
from ..runtime.distributed import ProcessGroup
from ..util import files
from . import run_record
from .run_record import Record

LOCK = ".lock"  # file in a folder of records, and in each record that was trained in it


class RecordLockedError(RuntimeError):
    """The run is being trained by another process."""


@contextlib.contextmanager
def locked_record(
    root: Path, run: Run, environment: dict[str, Any], group: ProcessGroup
) -> Iterator[Record]:
    """The unfinished record of the run, or a new one, locked for this group; or a finished one."""
    if not group.is_rank_0:
        yield run_record.load(group.broadcast(None))
        return
    with contextlib.ExitStack() as locks:
        record = _lock(root, run, environment, locks)
        group.broadcast(record.folder)
        yield record


def _lock(root: Path, run: Run, environment: dict[str, Any], locks: contextlib.ExitStack) -> Record:
    """The record of `locked_record`, locked until ``locks`` is closed.

    Another process may have begun or finished the run since this one looked for records.
    """
    if not files.is_folder(root):
        root.mkdir(parents=True, exist_ok=True)
    with files.locked(root / LOCK):  # in here no other process creates a record of this run
        found = run_record.unfinished(root, run)
        finished = run_record.finished(root, run)  # last: an unfinished one may end at any time
        if finished is not None:
            return finished
        folder = (found or run_record.create(root, run, environment)).folder
        try:
            locks.enter_context(files.locked(folder / LOCK, wait=False))
        except BlockingIOError as error:
            raise RecordLockedError(
                f"another process is training this run in {folder}: wait for it"
            ) from error
    record = run_record.load(folder)  # again, now that no other process writes it
    if record.result is not None:
        return record
    files.remove_drafts(folder)
    previous = dict(record.environment)
    before = previous.pop("before", [])
    if previous | {"started": None} != environment | {"started": None}:
        # Resumed on other hardware or with other code. Written now and not with the result, because
        # the run may be stopped here too and end in a third environment.
        record = replace(record, environment={**environment, "before": [*before, previous]})
        run_record.write_run(folder, run, record.environment, result=None)
    return record
