"""Atomic writes and locks of files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Writes ``data`` to ``path`` atomically.

    If the disk is full or the process dies, the previous file stays as it was. Of a link the target
    is replaced; to a pipe or a device ``data`` is written directly.
    """
    if _is_special(path):
        with _errors_about(path):
            path.write_bytes(data)
        return
    with _draft(path) as (draft, target):
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)


def check_writable(path: Path) -> None:
    """Raises the OSError of `write` for a missing folder or permission; changes nothing."""
    if not _is_special(path):
        with _draft(path) as (draft, _):
            draft.touch()
    elif not os.access(path, os.W_OK, effective_ids=True):
        raise _about(path, errno.EACCES)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder; False if it does not exist, an error if it is a file."""
    if path.is_file():
        raise _about(path, errno.ENOTDIR)
    return path.is_dir()


def _is_special(path: Path) -> bool:
    """Whether ``path`` is a pipe or a device, which can be written but not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextlib.contextmanager
def _draft(path: Path) -> Iterator[tuple[Path, Path]]:
    """The name of a temporary file, removed at the end, and of the file that it is to replace."""
    if path.is_dir():
        raise _about(path, errno.EISDIR)
    target = Path(os.path.realpath(path))  # through links, which stay
    if os.path.islink(target):  # to itself
        raise _about(path, errno.ELOOP)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with _errors_about(path):
            yield draft, target
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _errors_about(path: Path) -> Iterator[None]:
    """Errors name ``path`` instead of its temporary file."""
    try:
        yield
    except OSError as error:
        raise _about(path, error.errno or errno.EIO) from error


def _about(path: Path, code: int) -> OSError:
    """The operating system's error about ``path``."""
    return OSError(code, os.strerror(code), str(path))


def remove_drafts(folder: Path) -> None:
    """Removes temporary files that a killed process left."""
    for draft in folder.glob(".*.[0-9]*"):
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Holds an exclusive lock on ``path``, a file that is created if need be and stays.

    With ``wait=False`` it raises BlockingIOError if another process has the lock.
    """
    try:  # network file systems lock only what is open for writing
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not path.exists():
            raise
        # Another user's file: on local file systems read access is enough.
        handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
