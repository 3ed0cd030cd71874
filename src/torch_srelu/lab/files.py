"""Files that are either the old or the new one, whole, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Writes ``data`` to ``path`` at once.

    If the disk is full or the process dies, the file that was there stays as it was.
    """
    with _draft(path) as draft:
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)


def check_place(path: Path) -> None:
    """Raises what `write` would for want of a folder or of permission; changes nothing."""
    with _draft(path) as draft:
        draft.touch()


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder rather than nothing; that it is a file is an error."""
    if path.is_file():
        raise _about(path, errno.ENOTDIR)
    return path.is_dir()


@contextlib.contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """A name beside ``path`` for what is to take its place; nothing stays there.

    Errors are about ``path``: its drafts are nobody's business.
    """
    if path.is_dir():
        raise _about(path, errno.EISDIR)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
    except OSError as error:
        raise _about(path, error.errno or errno.EIO) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _about(path: Path, code: int) -> OSError:
    """The operating system's error about ``path``."""
    return OSError(code, os.strerror(code), str(path))


def sweep(folder: Path) -> None:
    """Removes drafts that a killed process left behind."""
    for draft in folder.glob(".*.[0-9]*"):
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Waits until no other process is inside with the same ``path``, a folder or a file to be made.

    With ``wait=False`` it raises BlockingIOError instead.
    """
    # Network file systems lock exclusively only what is open for writing, which a folder never is.
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
