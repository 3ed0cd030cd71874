"""Records that one process holds while it trains them."""

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

LOCK = ".lock"  # file in a folder of records, and in each record that was trained there


class Busy(RuntimeError):
    """The run is being trained by another process."""


@contextlib.contextmanager
def held_record(root: Path, run: Run, here: dict[str, Any], crew: ProcessGroup) -> Iterator[Record]:
    """The unfinished record of the run, or a new one, for this team alone; or a finished one."""
    if not crew.is_rank_0:
        yield run_record.load(crew.broadcast(None))
        return
    with contextlib.ExitStack() as alone:
        record = _take(root, run, here, alone)
        crew.broadcast(record.folder)
        yield record


def _take(root: Path, run: Run, here: dict[str, Any], alone: contextlib.ExitStack) -> Record:
    """What `held_record` gives, held until ``alone`` ends.

    Getting ready takes a while, in which other processes may have begun the run, or ended it.
    """
    if not files.is_folder(root):
        root.mkdir(parents=True, exist_ok=True)
    with files.locked(root / LOCK):  # in here no other process makes a record of this run
        begun = run_record.unfinished(root, run)
        done = run_record.finished(root, run)  # asked last: what was begun may end at any time
        if done is not None:
            return done
        folder = (begun or run_record.create(root, run, here)).folder
        try:
            alone.enter_context(files.locked(folder / LOCK, wait=False))
        except BlockingIOError as error:
            raise Busy(f"another process is training this run in {folder}: wait for it") from error
    record = run_record.load(folder)  # as it is, now that nobody else writes it
    if record.result is not None:
        return record
    files.sweep(folder)
    began = dict(record.environment)
    before = began.pop("before", [])
    if began | {"started": None} != here | {"started": None}:
        # It goes on elsewhere, or with other code, not only later: the record names all places.
        record = replace(record, environment={**here, "before": [*before, began]})
        # Now, and not with the result: it may be stopped here too, and end at a third place.
        run_record.write_run(folder, run, record.environment, result=None)
    return record
