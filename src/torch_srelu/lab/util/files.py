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

    If the disk is full or the process dies, the file that was there stays as it was. A link stays
    one, and what it points to is written; so does a pipe or a device, which takes ``data`` as it
    comes.
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
    """Raises what `write` would for want of a folder or of permission; changes nothing."""
    if not _is_special(path):
        with _draft(path) as (draft, _):
            draft.touch()
    elif not os.access(path, os.W_OK, effective_ids=True):
        raise _about(path, errno.EACCES)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder rather than nothing; that it is a file is an error."""
    if path.is_file():
        raise _about(path, errno.ENOTDIR)
    return path.is_dir()


def _is_special(path: Path) -> bool:
    """Whether ``path`` is there and can be written, but not replaced: a pipe, a device."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextlib.contextmanager
def _draft(path: Path) -> Iterator[tuple[Path, Path]]:
    """A name for what is to take the place of ``path``, and that place; no draft stays there."""
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
    """Errors name ``path``: its drafts are nobody's business."""
    try:
        yield
    except OSError as error:
        raise _about(path, error.errno or errno.EIO) from error


def _about(path: Path, code: int) -> OSError:
    """The operating system's error about ``path``."""
    return OSError(code, os.strerror(code), str(path))


def remove_drafts(folder: Path) -> None:
    """Removes drafts that a killed process left behind."""
    for draft in folder.glob(".*.[0-9]*"):
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Waits until no other process is inside with the same ``path``, a file that is made and stays.

    With ``wait=False`` it raises BlockingIOError instead.
    """
    try:  # network file systems lock only what is open for writing
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not path.exists():
            raise
        # Another user has made it: elsewhere it is enough that it can be read.
        handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
