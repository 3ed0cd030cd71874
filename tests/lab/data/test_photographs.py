"""Photographs from class folders and shards: the same images, epochs that resume, bad input."""

import io
import multiprocessing
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import CLASSES, encoded, write_folders, write_shard, write_shards
from PIL import Image

from torch_srelu.lab.data.batches import epoch_order
from torch_srelu.lab.data.datasets import DataError
from torch_srelu.lab.data.photographs import decoding_workers
from torch_srelu.lab.data.photographs import photograph_batches as batches_module
from torch_srelu.lab.data.photographs.decoding_workers import decode
from torch_srelu.lab.data.photographs.find_photographs import open_images
from torch_srelu.lab.data.photographs.listing import Listing
from torch_srelu.lab.data.photographs.photograph_batches import (
    MEAN,
    ResidentBatches,
    StreamedBatches,
    decode_all,
    decode_center_crops,
    random_crops,
)
from torch_srelu.lab.runtime.distributed import ProcessGroup
from two_processes import run_in_two_processes

CPU = torch.device("cpu")


def streamed(
    listing: Listing, workers: int = 0, group: ProcessGroup | None = None
) -> StreamedBatches:
    return StreamedBatches(
        listing, 4, seed=3, device=CPU, group=group or ProcessGroup(), workers=workers
    )


def epoch(batches, number: int, step: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Copies of the batches of an epoch from ``step`` on."""
    batches.begin(number, step)
    taken = []
    for _ in range(step, batches.steps):
        if isinstance(batches, StreamedBatches):
            batches.advance()
        taken.append(tuple(t.clone() for t in batches.next()))
    return taken


def equal(one, other) -> bool:
    return all(map(torch.equal, [t for pair in one for t in pair], [t for p in other for t in p]))


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    return write_folders(tmp_path_factory.mktemp("folders"))


def test_folders_are_listed_by_class(folders):
    train, val = open_images(folders, ProcessGroup())
    assert train.classes == val.classes == CLASSES
    assert train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert len(val) == 6
    assert train.name(5) == "train/n02/1.JPEG"
    assert train.read(5) == (folders / "train/n02/1.JPEG").read_bytes()


def test_shards_hold_the_same_images(folders, tmp_path):
    train, _ = open_images(folders, ProcessGroup())
    packed, val = open_images(write_shards(tmp_path), ProcessGroup())
    assert packed.classes == val.classes == ("0", "1", "2")
    in_folders = sorted((label, train.read(i)) for i, label in enumerate(train.labels.tolist()))
    in_shards = sorted((label, packed.read(i)) for i, label in enumerate(packed.labels.tolist()))
    assert in_shards == in_folders
    assert packed.name(0) == "train-000000.tar:0_0.jpg"


def test_shards_may_lie_in_a_folder_a_part(tmp_path):
    for part in ("train", "val"):
        write_shard(tmp_path / part / "a.tar", {"x/1.png": encoded(1, "PNG"), "x/1.cls": b"0\n"})
    train, _ = open_images(tmp_path, ProcessGroup())
    assert train.name(0) == "train/a.tar:x/1.png"
    assert train.read(0) == encoded(1, "PNG")


def test_images_become_squares_of_red_green_and_blue():
    raw = encoded(3, "PNG", (300, 200))
    with Image.open(io.BytesIO(raw)) as image:
        square = np.asarray(image.resize((256, 256), Image.Resampling.BILINEAR))
    assert torch.equal(decode(raw), torch.from_numpy(square.transpose(2, 0, 1).copy()))
    grey = io.BytesIO()
    Image.new("L", (256, 256), 77).save(grey, "PNG")
    assert torch.equal(decode(grey.getvalue()), torch.full((3, 256, 256), 77, dtype=torch.uint8))


def test_a_batch_is_cut_mirrored_and_without_the_mean(folders):
    train, _ = open_images(folders, ProcessGroup())
    (x, y), *_ = epoch(streamed(train), 1)
    crops = random_crops(len(train), 3, 1)
    for image, label, i in zip(x, y, epoch_order(12, 4, 3, 1)[0].tolist(), strict=True):
        top, left = int(crops.top[i]), int(crops.left[i])
        part = decode(train.read(i))[:, top : top + 224, left : left + 224].float()
        expected = part - torch.tensor(MEAN)[:, None, None]
        assert torch.equal(image, expected.flip(2) if crops.mirrored[i] else expected)
        assert label == train.labels[i]
    assert 0 < crops.mirrored.sum() < 12


def test_an_epoch_visits_each_image_once_and_epochs_differ(folders):
    train, _ = open_images(folders, ProcessGroup())
    batches = streamed(train)
    first, second = epoch(batches, 0), epoch(batches, 1)
    assert sorted(torch.cat([y for _, y in first]).tolist()) == train.labels.tolist()
    assert not equal(first, second)


# Python 3.12 warns of every fork of a process with threads; workers use none of them.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_goes_on_from_any_step(folders, workers):
    train, _ = open_images(folders, ProcessGroup())
    whole = epoch(streamed(train), 1)
    batches = streamed(train, workers)
    batches.begin(0)
    batches.advance()  # an epoch that is left in its middle
    assert equal(epoch(batches, 1, step=2), whole[2:])
    assert equal(epoch(batches, 1), whole)  # and workers are used again


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_no_worker_stays_behind(folders):
    train, _ = open_images(folders, ProcessGroup())
    batches = streamed(train, workers=2)
    epoch(batches, 0)
    assert not multiprocessing.active_children()
    batches.begin(1)
    batches.advance()
    assert len(multiprocessing.active_children()) == 2
    batches.close()
    assert not multiprocessing.active_children()


def test_images_kept_on_the_device_give_the_same_batches(folders):
    train, _ = open_images(folders, ProcessGroup())
    images, labels, skipped = decode_all(train, CPU, workers=0)
    assert not skipped
    kept = ResidentBatches(images, labels, 4, seed=3, group=ProcessGroup())
    for number in (0, 1):
        assert equal(epoch(kept, number), epoch(streamed(train), number))
    assert equal(epoch(kept, 1, step=1), epoch(streamed(train), 1, step=1))


def test_processes_share_each_batch(folders):
    train, _ = open_images(folders, ProcessGroup())
    whole = epoch(streamed(train), 0)
    halves = [epoch(streamed(train, group=ProcessGroup(rank, 2)), 0) for rank in (0, 1)]
    joined = [
        (torch.cat([a, c]), torch.cat([b, d])) for (a, b), (c, d) in zip(*halves, strict=True)
    ]
    assert equal(joined, whole)


def test_evaluation_sees_the_middle_of_every_image(folders):
    _, val = open_images(folders, ProcessGroup())
    (x, y), *rest = decode_center_crops(val, CPU, workers=0, skipped=set())
    assert not rest
    assert torch.equal(y, val.labels)
    middle = decode(val.read(2))[:, 16:240, 16:240].float()
    assert torch.equal(x[2], middle - torch.tensor(MEAN)[:, None, None])


def test_an_image_that_cannot_be_decoded_is_skipped_and_named(tmp_path):
    root = write_folders(tmp_path)
    whole = (root / "train/n02/1.JPEG").read_bytes()
    (root / "train/n02/1.JPEG").write_bytes(whole[: len(whole) // 2])  # cut short
    train, _ = open_images(root, ProcessGroup())
    batches = streamed(train)
    with pytest.warns(UserWarning, match="train/n02/1.JPEG cannot be decoded and is skipped"):
        taken = epoch(batches, 0)
    assert batches.skipped == {"train/n02/1.JPEG"}
    assert all(len(x) == 4 for x, _ in taken)  # another image took its place
    assert len(torch.cat([x for x, _ in taken]).flatten(1).unique(dim=0)) == 11
    with pytest.warns(UserWarning, match="cannot be decoded"):
        images, labels, skipped = decode_all(train, CPU, workers=0)
    assert skipped == {"train/n02/1.JPEG"}
    assert labels.tolist() == [0] * 4 + [1] * 3 + [2] * 4
    assert torch.equal(images[5], decode(train.read(6)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_last_batch_of_nothing_but_an_unreadable_image_is_left_out(
    tmp_path, monkeypatch, workers
):
    root = write_folders(tmp_path)
    (root / "train/n03/3.JPEG").write_bytes(b"no image")
    train, _ = open_images(root, ProcessGroup())
    monkeypatch.setattr(batches_module, "_BATCH", 11)  # the twelfth image is a batch of its own
    with pytest.warns(UserWarning, match="train/n03/3.JPEG cannot be decoded and is skipped"):
        images, labels, skipped = decode_all(train, CPU, workers)
    assert skipped == {"train/n03/3.JPEG"}
    assert labels.tolist() == [0] * 4 + [1] * 4 + [2] * 3
    assert len(images) == 11
    skipped = set()
    with pytest.warns(UserWarning, match="cannot be decoded"):
        pieces = list(decode_center_crops(train, CPU, workers, skipped))
    assert [len(x) for x, _ in pieces] == [11]
    assert skipped == {"train/n03/3.JPEG"}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_training_batch_without_any_image_is_an_error_in_plain_words(tmp_path, workers):
    root = write_folders(tmp_path)
    (root / "train/n03/3.JPEG").write_bytes(b"no image")
    train, _ = open_images(root, ProcessGroup())
    alone = StreamedBatches(train, 1, seed=1, device=CPU, group=ProcessGroup(), workers=workers)
    message = r"^no image of a whole batch can be decoded, first train/n03/3.JPEG: replace or "
    with (
        pytest.warns(UserWarning, match="cannot be decoded"),
        pytest.raises(DataError, match=message),
    ):
        epoch(alone, 0)


def test_too_many_unreadable_images_are_an_error(tmp_path):
    root = write_folders(tmp_path)
    for name in ("0", "3"):
        (root / f"train/n03/{name}.JPEG").write_bytes(b"no image")
    train, _ = open_images(root, ProcessGroup())
    message = r"2 of 12 images .* 1 that are skipped: train/n03/0.JPEG"
    with (
        pytest.warns(UserWarning, match="cannot be decoded"),  # the first one
        pytest.raises(DataError, match=message),
    ):
        epoch(streamed(train), 0)


def test_a_small_share_is_allowed(tmp_path, monkeypatch):
    root = write_folders(tmp_path)
    for name in ("0", "3"):
        (root / f"train/n03/{name}.JPEG").write_bytes(b"no image")
    train, _ = open_images(root, ProcessGroup())
    monkeypatch.setattr(decoding_workers, "MAX_UNREADABLE_SHARE", 2 / 12)
    batches = streamed(train)
    with pytest.warns(UserWarning, match="cannot be decoded"):
        epoch(batches, 0)
    assert len(batches.skipped) == 2


def test_class_folders_that_differ_are_refused(tmp_path):
    root = write_folders(tmp_path)
    (root / "val/n02").rename(root / "val/n09")
    with pytest.raises(DataError, match=r"only in train: n02; only in val: n09"):
        open_images(root, ProcessGroup())


def test_empty_and_missing_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"train has no class folders: expected"):
        open_images(tmp_path, ProcessGroup())
    root = write_folders(tmp_path)
    for image in (root / "train/n01").iterdir():
        image.unlink()
    with pytest.raises(DataError, match=r"train/n01 holds no image"):
        open_images(root, ProcessGroup())


def test_a_missing_shard_is_named(tmp_path):
    root = write_shards(tmp_path, shards=3)
    (root / "train-000001.tar").unlink()
    with pytest.raises(DataError, match=r"lacks train-000001.tar: an epoch needs every shard"):
        open_images(root, ProcessGroup())


def test_a_shard_that_both_parts_would_take_is_refused(tmp_path):
    root = tmp_path
    write_shard(root / "trainval-000000.tar", {"1.jpg": encoded(1), "1.cls": b"0"})
    with pytest.raises(DataError, match=r"trainval-000000.tar has train and val in its name"):
        open_images(root, ProcessGroup())
    (root / "train").mkdir()
    (root / "trainval-000000.tar").rename(root / "train/trainval-000000.tar")
    write_shard(root / "val/test.tar", {"2.jpg": encoded(2), "2.cls": b"0"})
    assert [len(listing) for listing in open_images(root, ProcessGroup())] == [1, 1]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"1.jpg": encoded(1)}, r"has no class for 1.jpg \(1 such images\)"),
        ({"1.jpg": encoded(1), "1.cls": b"cat"}, r"1.cls should hold the number of a class"),
        ({"notes.txt": b"hello"}, r"hold no images"),
    ],
)
def test_shards_without_sense_are_refused(tmp_path, members, message):
    write_shard(tmp_path / "train-0.tar", members)
    with pytest.raises(DataError, match=message):
        open_images(tmp_path, ProcessGroup())


def test_a_damaged_shard_is_refused(tmp_path):
    root = write_shards(tmp_path)
    shard = root / "train-000001.tar"
    shard.write_bytes(shard.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"train-000001.tar is damaged or no tar file"):
        open_images(root, ProcessGroup())


def test_a_batch_larger_than_the_data_is_refused(folders):
    train, _ = open_images(folders, ProcessGroup())
    with pytest.raises(ValueError, match="a batch of 13 images is more than the 12"):
        StreamedBatches(train, 13, seed=0, device=CPU, group=ProcessGroup(), workers=0)


def missing_for_one(rank: int, group) -> None:
    """Process 1 has folders of its own: in one the last shard is missing, one has a gap."""
    base, group = Path(os.environ["PHOTOGRAPHS"]), ProcessGroup(rank, 2)
    assert len(open_images(base / "whole", group)[0]) == 12
    with pytest.raises(DataError, match=r"process 1 sees 0 images in train-000001.tar where"):
        open_images(base / ("no last" if rank else "whole"), group)
    with pytest.raises(DataError, match=r"process 1: .* lacks train-000002.tar"):
        open_images(base / ("a gap" if rank else "whole"), group)


def test_shards_that_one_process_lacks_are_an_error_for_all(tmp_path, monkeypatch):
    for name in ("whole", "no last", "a gap"):
        write_shards(tmp_path / name)
    (tmp_path / "no last/train-000001.tar").unlink()
    shard = tmp_path / "a gap/train-000000.tar"
    shard.rename(shard.with_name("train-000003.tar"))
    monkeypatch.setenv("PHOTOGRAPHS", str(tmp_path))
    run_in_two_processes(missing_for_one, tmp_path)


def test_links_in_a_shard_are_not_followed(tmp_path):
    root = write_shards(tmp_path)
    with tarfile.open(root / "train-000000.tar", "a") as archive:
        link = tarfile.TarInfo("9_9.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    train, _ = open_images(root, ProcessGroup())
    assert len(train) == 12
