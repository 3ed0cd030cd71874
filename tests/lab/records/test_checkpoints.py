"""Truncated checkpoints and full disks."""

import resource

import pytest
import torch

from torch_srelu.lab.records import checkpoints
from torch_srelu.lab.records.checkpoints import NAME, PREVIOUS, CheckpointWarning


def state(epoch: int) -> dict:
    return {"epoch": epoch, "weights": torch.full((5000,), float(epoch)), "list": [1.5, None, "x"]}


@pytest.fixture
def folder(tmp_path):
    checkpoints.save(tmp_path, state(1))
    checkpoints.save(tmp_path, state(2))
    return tmp_path


def test_the_newest_is_loaded_and_the_one_before_is_kept(folder):
    loaded = checkpoints.load(folder)
    assert loaded is not None
    assert loaded["epoch"] == 2
    assert torch.equal(loaded["weights"], state(2)["weights"])
    assert loaded["list"] == state(2)["list"]
    assert sorted(p.name for p in folder.iterdir()) == sorted([NAME, PREVIOUS])


def test_none_without_a_checkpoint(tmp_path):
    assert checkpoints.load(tmp_path) is None


@pytest.mark.parametrize("kept", [0, 10, 60, 200, 20_000])
def test_a_truncated_checkpoint_falls_back_with_a_warning(folder, kept):
    path = folder / NAME
    whole = path.read_bytes()
    assert len(whole) > kept
    path.write_bytes(whole[:kept])
    with pytest.warns(CheckpointWarning, match=rf"{NAME}.*going on from {PREVIOUS}"):
        loaded = checkpoints.load(folder)
    assert loaded is not None
    assert loaded["epoch"] == 1


def test_a_flipped_bit_is_detected(folder):
    path = folder / NAME
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.warns(CheckpointWarning, match="wrong checksum"):
        loaded = checkpoints.load(folder)
    assert loaded is not None
    assert loaded["epoch"] == 1


def test_killed_between_the_two_renames_nothing_is_lost(folder):
    (folder / NAME).replace(folder / PREVIOUS)
    loaded = checkpoints.load(folder)
    assert loaded is not None
    assert loaded["epoch"] == 2


def test_without_a_valid_checkpoint_training_starts_again(folder):
    for name in (NAME, PREVIOUS):
        (folder / name).write_bytes(b"nothing")
    with pytest.warns(CheckpointWarning, match="begins anew"):
        assert checkpoints.load(folder) is None


def test_a_full_disk_keeps_both(folder):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="the one before is untouched; make room"):
            checkpoints.save(folder, state(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_nothing_is_executed_on_loading(folder, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    checkpoints.save(folder, {"trap": Trap()})
    with pytest.raises(Exception, match="Weights only load failed"):
        checkpoints.load(folder)
    assert not (tmp_path / "executed").exists()
