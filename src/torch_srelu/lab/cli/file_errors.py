"""Messages for errors of the file system, which say what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path


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
