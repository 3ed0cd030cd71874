"""Files that are either the old or the new one, whole, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Writes ``data`` to ``path`` at once.

    If the disk is full or the process dies, the file that was there stays as it was.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Removes drafts that a killed process left behind."""
    for draft in folder.glob(".*.[0-9]*"):
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits until no other process is inside with the same ``path``, a file that is made."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
