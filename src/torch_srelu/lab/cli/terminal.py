"""Console, one-line errors and exit codes of all commands."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from ..records.locks import RecordLockedError

FAILED, INTERRUPTED = 1, 130

IS_RANK_0 = os.environ.get("RANK", "0") == "0"  # the only process that prints
console = Console(highlight=False, quiet=not IS_RANK_0)
errors = Console(highlight=False, stderr=True, soft_wrap=True)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns errors that a user can correct into one line and exit code 1.

    These are ValueError and TypeError for wrong values, OSError for files, and Busy for a run that
    another process trains; any other error is a bug and keeps its traceback.
    """
    try:
        yield
    except OSError as error:
        fail(explain(error))
    except (ValueError, TypeError, RecordLockedError) as error:
        fail(str(error))


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Prints warnings without file, line and source code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: _print("yellow", str(message))
        yield


def fail(message: str) -> None:
    """Prints ``message`` to the standard error and exits with code 1."""
    _print("bold red", message)
    raise typer.Exit(FAILED)


def _print(color: str, message: str) -> None:
    errors.print(f"[{color}]srelu:[/] {escape(message)}")


def examples(*commands: str) -> str:
    """Example commands for the end of a help text."""
    return "\n\n".join(["Examples:", *(f"- `{command}`" for command in commands)])


def duration(seconds: float) -> str:
    """Seconds in hours, minutes and seconds.

    Example:
        >>> duration(8.2), duration(100), duration(4000)
        ('8 s', '1 min 40 s', '1 h 06 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def explain(error: OSError) -> str:
    """One line: the path, what was found, what was expected, what to do.

    Errors without a path, such as those of a network, keep their message.
    """
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return str(error)
    path, words = Path(os.fsdecode(error.filename)), error.strerror or str(error)
    words = words[:1].lower() + words[1:]
    if error.errno and error.strerror != os.strerror(error.errno):  # the message says what to do
        return f"{path}: {words}"
    upwards = (path, *path.parents)
    file = next((place for place in upwards if os.path.isfile(place)), None)
    if file and isinstance(error, NotADirectoryError | FileExistsError):
        return f"{file} is a file, where a folder is expected: name a folder, or move the file away"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder, where a file is expected: name a file, as in {path / 'NAME'}"
    if isinstance(error, FileNotFoundError):
        if not os.path.exists(path.parent):
            return (
                f"the folder {path.parent} for {path.name} does not exist: make it, or name "
                "another place"
            )
        return f"{path} does not exist, or cannot be made there: name another place"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return (
            f"{path} may not be read or written ({words}): change its permissions or those "
            "of its folder, or name another place"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{path} cannot be written ({words}): make room, then give the command again"
    return f"{path}: {words}"
