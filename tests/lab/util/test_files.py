"""Atomic writes, locks, and errors that name the file."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_srelu.lab.util import files


@pytest.mark.parametrize("act", [files.check_writable, lambda path: files.write(path, b"new")])
def test_an_error_is_about_the_file_that_was_named(tmp_path: Path, act) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        act(tmp_path / "no/where")
    assert missing.value.filename == str(tmp_path / "no/where")
    with pytest.raises(IsADirectoryError) as folder:
        act(tmp_path)
    assert folder.value.filename == str(tmp_path)


def test_check_writable_changes_nothing(tmp_path: Path) -> None:
    files.check_writable(tmp_path / "new")
    assert not list(tmp_path.iterdir())
    (tmp_path / "old").write_bytes(b"content")
    files.check_writable(tmp_path / "old")
    assert (tmp_path / "old").read_bytes() == b"content"


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert files.is_folder(tmp_path)
    assert not files.is_folder(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        files.is_folder(tmp_path / "file")
    assert caught.value.filename == str(tmp_path / "file")


def test_a_link_stays_one_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there/target", tmp_path / "link"
    link.symlink_to("there/target")
    for content in (b"first", b"second"):  # the target is made, then replaced
        files.check_writable(link)
        files.write(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(OSError, match=r"[Ss]ymbolic") as caught:
        files.write(link, b"text")
    assert caught.value.filename == str(link)
    assert link.is_symlink()


def test_a_fifo_stays_one_and_its_reader_gets_all(tmp_path: Path) -> None:
    fifo, link, read = tmp_path / "fifo", tmp_path / "link", []
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    for path in (fifo, link):
        files.check_writable(path)
        reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()), daemon=True)
        reader.start()
        files.write(path, b"content")
        reader.join(timeout=10)
        assert stat.S_ISFIFO(os.lstat(fifo).st_mode)
    assert read == [b"content"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "link"]


def test_a_device_stays_one(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only the administrator makes devices")
    files.check_writable(device)
    files.write(device, b"content")
    assert stat.S_ISCHR(os.lstat(device).st_mode)
    full = tmp_path / "full"
    os.mknod(full, stat.S_IFCHR | 0o600, os.makedev(1, 7))
    with pytest.raises(OSError, match="No space left") as caught:
        files.write(full, b"content")
    assert caught.value.filename == str(full)


def test_standard_output_is_written_as_it_is() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        path = Path(f"/proc/self/fd/{writing}")
        files.check_writable(path)
        files.write(path, b"content")
        os.close(writing)
        assert pipe.read() == b"content"


@contextlib.contextmanager
def somebody_else() -> Iterator[None]:
    """This process without the administrator's powers, where it has them."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)


def test_check_writable_finds_missing_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the folders above it are nobody else's business
    os.mkfifo("fifo", 0o400)
    tmp_path.chmod(0o555)
    try:
        with somebody_else():
            for name in ("fifo", "file"):
                with pytest.raises(PermissionError) as caught:
                    files.check_writable(Path(name))
                assert caught.value.filename == name
    finally:
        tmp_path.chmod(0o755)


def test_what_is_locked_is_open_for_writing(tmp_path: Path) -> None:
    """As file systems of a network want it."""
    lock = tmp_path / "lock"
    with files.locked(lock):
        handles = {os.readlink(f): f for f in Path("/proc/self/fd").iterdir() if f.is_symlink()}
        flags = Path("/proc/self/fdinfo", handles[str(lock)].name).read_text().split()[3]
        assert int(flags, 8) & os.O_ACCMODE == os.O_RDWR
        with pytest.raises(BlockingIOError), files.locked(lock, wait=False):
            pass
    with files.locked(lock, wait=False):
        pass


def test_a_lock_that_others_made_is_shared_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    lock = Path("lock")
    with somebody_else(), pytest.raises(PermissionError), files.locked(lock):
        pass
    lock.touch(0o444)
    with somebody_else(), files.locked(lock):
        pass
    with (
        files.locked(lock),
        somebody_else(),
        pytest.raises(BlockingIOError),
        files.locked(lock, wait=False),
    ):
        pass
