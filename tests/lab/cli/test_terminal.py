"""Errors of the file system in words, from what the operating system raises."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torch_srelu.lab.cli.terminal import explain


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Path("file/below/deep").mkdir(), "file is a file, where a folder is expected"),
        (lambda: Path("file").mkdir(), "file is a file, where a folder is expected"),
        (lambda: Path("folder").write_bytes(b""), "folder is a folder, where a file is expected"),
        (lambda: os.stat(b"no/such"), "the folder no for such does not exist"),
        (lambda: Path("nothing").read_bytes(), "nothing does not exist"),
        (lambda: Path("/proc/x").mkdir(), "/proc/x does not exist, or cannot be made there: name"),
        (lambda: Path("folder").mkdir(), "folder: file exists"),  # two at the same moment
    ],
)
def test_what_the_operating_system_says(act: Callable[[], object], message: str) -> None:
    with pytest.raises(OSError, match="Errno") as caught:
        act()
    assert explain(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("code", "message"),
    [  # what cannot be had from every machine, and by every user
        (errno.EACCES, "file may not be read or written (permission denied): change"),
        (errno.EROFS, "file may not be read or written (read-only file system): change"),
        (errno.ENOSPC, "file cannot be written (no space left on device): make room"),
        (errno.EIO, "file: input/output error"),
    ],
)
def test_what_it_may_say(code: int, message: str) -> None:
    assert explain(OSError(code, os.strerror(code), "file")).startswith(message)


def test_what_says_itself_what_to_do_is_told_nothing_else() -> None:
    words = "cannot write the checkpoint: make room"
    assert explain(OSError(errno.ENOSPC, words, "file")) == f"file: {words}"


def test_without_a_path_it_keeps_its_words() -> None:
    assert explain(OSError("the server is asleep")) == "the server is asleep"
    assert explain(OSError(errno.EPIPE, "Broken pipe")) == "[Errno 32] Broken pipe"
