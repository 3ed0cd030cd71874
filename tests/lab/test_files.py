"""Files that are written whole, and what is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_srelu.lab import files


@pytest.mark.parametrize("act", [files.check_place, lambda path: files.write(path, b"new")])
def test_an_error_is_about_the_file_that_was_named(tmp_path: Path, act) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        act(tmp_path / "no/where")
    assert missing.value.filename == str(tmp_path / "no/where")
    with pytest.raises(IsADirectoryError) as folder:
        act(tmp_path)
    assert folder.value.filename == str(tmp_path)


def test_check_place_changes_nothing(tmp_path: Path) -> None:
    files.check_place(tmp_path / "new")
    assert not list(tmp_path.iterdir())
    (tmp_path / "old").write_bytes(b"content")
    files.check_place(tmp_path / "old")
    assert (tmp_path / "old").read_bytes() == b"content"


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert files.is_folder(tmp_path)
    assert not files.is_folder(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        files.is_folder(tmp_path / "file")
    assert caught.value.filename == str(tmp_path / "file")
