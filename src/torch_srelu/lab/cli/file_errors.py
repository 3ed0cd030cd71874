"""Messages for errors of the file system, which say what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)


def explain(error: OSError) -> str:
    """One line: the path, what was found, what was expected, what to do.

    Errors without a path, such as those of a network, keep their message.
    """
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return str(error)
    path = Path(os.fsdecode(error.filename))
    if error.errno and error.strerror != os.strerror(error.errno):  # the message says what to do
        return f"{path}: {_words(error)}"
    upwards = (path, *path.parents)
    if isinstance(error, NotADirectoryError | FileExistsError):
        files = [place for place in upwards if os.path.isfile(place)]
        if files:
            return (
                f"{files[0]} is a file, where a folder is expected: name a folder, or move the "
                "file away"
            )
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder, where a file is expected: name a file, as in {path / 'NAME'}"
    if isinstance(error, FileNotFoundError):
        missing = [place for place in upwards if not os.path.exists(place)]
        if missing[1:]:
            return (
                f"the folder {path.parent} for {path.name} does not exist: make it, or name "
                "another place"
            )
        return f"{path} does not exist, or cannot be made there: name another place"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return (
            f"{path} may not be read or written ({_words(error)}): change its permissions or those "
            "of its folder, or name another place"
        )
    if error.errno in _FULL:
        return f"{path} cannot be written ({_words(error)}): make room, then give the command again"
    return f"{path}: {_words(error)}"


def _words(error: OSError) -> str:
    words = error.strerror or str(error)
    return words[:1].lower() + words[1:]
