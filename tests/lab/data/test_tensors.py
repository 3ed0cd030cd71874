"""Data sets from small files in the official formats, in every packing, right and wrong."""

import gzip
import hashlib
import io
import os
import pickle
import tarfile

import numpy as np
import pytest
import torch
from official import cifar_rows, describe, idx_file, mnist_arrays
from sklearn.datasets import load_digits

from torch_srelu.lab.data import cifar, idx, locations, tensors
from torch_srelu.lab.data.datasets import DATASETS, DataError

COUNT = 20


def md5(raw: bytes) -> str:
    return hashlib.md5(raw).hexdigest()


@pytest.fixture
def mnist(monkeypatch):
    arrays = mnist_arrays(COUNT)
    contents = {name: idx_file(array) for name, array in arrays.items()}
    monkeypatch.setitem(DATASETS, "mnist", describe("mnist", contents))
    return arrays, contents


@pytest.fixture(params=["cifar10", "cifar100"])
def small_cifar(request, monkeypatch):
    """Name, rows of every binary file (labels first), and number of label bytes."""
    rows = cifar_rows(request.param, COUNT)
    contents = {name: r.tobytes() for name, r in rows.items()}
    monkeypatch.setitem(DATASETS, request.param, describe(request.param, contents))
    return request.param, rows, DATASETS[request.param].label_bytes


def as_python(rows: np.ndarray, label_bytes: int, protocol: int) -> bytes:
    names = ["labels"] if label_bytes == 1 else ["coarse_labels", "fine_labels"]
    batch: dict = {n: [int(v) for v in rows[:, i]] for i, n in enumerate(names)}
    batch |= {"data": rows[:, label_bytes:].copy(), "filenames": ["a.png"] * len(rows)}
    return pickle.dumps(batch, protocol=protocol)


def files_of(form: str, rows: dict, label_bytes: int) -> dict[str, bytes]:
    if form == "binary":
        return {name: r.tobytes() for name, r in rows.items()}
    return {
        name.removesuffix(".bin"): as_python(r, label_bytes, protocol=2 if i % 2 else 4)
        for i, (name, r) in enumerate(rows.items())
    }


def pack(path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, raw in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))


@pytest.mark.parametrize("found", [True, False])
def test_digits_are_those_of_scikit_learn(monkeypatch, found: bool) -> None:
    if not found:  # as in a version that keeps them elsewhere
        monkeypatch.setattr(tensors, "find_spec", lambda name: None)
    images, classes = load_digits(return_X_y=True)
    order = torch.cat(
        tensors.split(torch.from_numpy(classes).to(torch.uint8), tensors.DIGITS_TEST_SHARE)
    )
    parts = [tensors.load("digits", part) for part in ("train", "test")]
    ours = torch.cat([part.images for part in parts]).flatten(1)
    assert torch.equal(ours, torch.from_numpy(images).to(torch.uint8)[order])
    assert torch.cat([part.labels for part in parts]).tolist() == classes[order].tolist()


def test_digits_are_there_without_any_file(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/nonexistent")
    train, test = tensors.load("digits", "train"), tensors.load("digits", "test")
    assert len(train.images) + len(test.images) == 1797
    assert train.images.max() == DATASETS["digits"].white
    assert torch.equal(train.labels.unique(), torch.arange(10, dtype=torch.uint8))
    both = torch.cat([train.images, test.images]).flatten(1).unique(dim=0)
    assert len(both) == 1797  # no image in both parts


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_idx_files_with_and_without_gzip(mnist, tmp_path, zipped, folder):
    arrays, contents = mnist
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name, raw in contents.items():
        path = tmp_path / folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(raw) if zipped else raw)
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = tensors.load("mnist", part, tmp_path)
        np.testing.assert_array_equal(images[:, 0], arrays[f"{prefix}-images-idx3-ubyte"])
        np.testing.assert_array_equal(labels, arrays[f"{prefix}-labels-idx1-ubyte"])


@pytest.mark.parametrize("form", ["binary", "python"])
@pytest.mark.parametrize("packed", [True, False])
def test_cifar_in_all_four_packings(small_cifar, tmp_path, form, packed):
    name, rows, label_bytes = small_cifar
    number = name.removeprefix("cifar")
    ending = {
        "binary": "batches-bin" if number == "10" else "binary",
        "python": "batches-py" if number == "10" else "python",
    }[form]
    folder = f"cifar-{number}-{ending}"
    members = files_of(form, rows, label_bytes)
    if packed:
        archive = tmp_path / f"cifar-{number}-{form}.tar.gz"
        pack(archive, {f"{folder}/{n}": raw for n, raw in members.items()})
    else:
        (tmp_path / folder).mkdir()
        for file, raw in members.items():
            (tmp_path / folder / file).write_bytes(raw)
    for part in ("train", "test"):
        images, labels = tensors.load(name, part, tmp_path)
        expected = np.concatenate([rows[f] for f in getattr(DATASETS[name], part)])
        np.testing.assert_array_equal(images.flatten(1), expected[:, label_bytes:])
        np.testing.assert_array_equal(labels, expected[:, label_bytes - 1])


def test_where_data_are_looked_for(mnist, tmp_path, monkeypatch):
    data = DATASETS["mnist"]
    monkeypatch.setenv("SRELU_DATA", str(tmp_path / "b"))
    assert locations.data_folders(tmp_path / "a") == [
        tmp_path / "a",
        tmp_path / "b",
        locations.cache_folder() / "data",
    ]
    assert locations.find(data, tmp_path / "a") is None
    with pytest.raises(DataError, match=r"mnist was not found in .*a, .*b, .*srelu data get mnist"):
        tensors.load("mnist", "train", tmp_path / "a")
    for root in (locations.cache_folder() / "data", tmp_path / "b", tmp_path / "a"):
        (root / "mnist").mkdir(parents=True)
        (root / "mnist" / "train-images-idx3-ubyte").touch()
        assert locations.find(data, tmp_path / "a") == root / "mnist"


def test_a_missing_file_is_named(mnist, tmp_path):
    name = "train-images-idx3-ubyte"
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / name).write_bytes(mnist[1][name])
    with pytest.raises(DataError, match=r"lacks train-labels-idx1-ubyte or train-labels.*\.gz"):
        tensors.load("mnist", "train", tmp_path)


def test_a_damaged_file_is_named_with_both_checksums(mnist, tmp_path):
    (tmp_path / "mnist").mkdir()
    for name, raw in mnist[1].items():
        (tmp_path / "mnist" / name).write_bytes(raw)
    tensors.load("mnist", "train", tmp_path)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    found = md5(bytes(raw))
    expected = DATASETS["mnist"].train[path.name]
    with pytest.raises(DataError, match=f"{path.name}.*{found}, expected {expected}.*data get"):
        tensors.load("mnist", "train", tmp_path)


def test_checksums_are_computed_once(mnist, tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    for name, raw in mnist[1].items():
        (tmp_path / "mnist" / name).write_bytes(raw)
    tensors.load("mnist", "train", tmp_path)

    def computed_again(*_args, **_options):
        raise AssertionError("computed again")

    monkeypatch.setattr("torch_srelu.lab.data.locations.hashlib.md5", computed_again)
    tensors.load("mnist", "train", tmp_path)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    os.utime(path, ns=(1, 1))  # a file that was touched is looked at again
    with pytest.raises(AssertionError, match="computed again"):
        tensors.load("mnist", "train", tmp_path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not an idx file"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "not an idx file of unsigned bytes"),
        (idx_file(np.zeros((3, 2), np.uint8))[:-1], "18 bytes in all, but it has 17"),
        (idx_file(np.zeros((3, 2), np.uint8))[:6], "damaged"),
    ],
)
def test_damaged_idx_files(raw, message):
    with pytest.raises(DataError, match=f"some file is .*{message}"):
        idx.decode(raw, "some file")


def test_a_gzip_file_cut_short():
    with pytest.raises(DataError, match="some file is damaged"):
        idx.unpack(gzip.compress(bytes(1000))[:-9], "some file")


def test_a_binary_file_cut_short():
    with pytest.raises(DataError, match="no whole number of records of 3073"):
        cifar.decode(bytes(3073 * 2 - 1), 1, "data_batch_1.bin")


@pytest.mark.parametrize(
    "payload", [b"cos\nsystem\n(S'touch executed'\ntR.", b"cbuiltins\neval\n(S'1'\ntR."]
)
def test_a_pickle_that_wants_to_run_something_is_refused(payload, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"refused to unpickle (os\.system|builtins\.eval)"):
        cifar.from_python(payload, 1, "data_batch_1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "batch", [b"", b"garbage", pickle.dumps({"data": np.zeros((2, 5), np.uint8), "labels": [1, 2]})]
)
def test_a_pickle_of_something_else(batch):
    with pytest.raises(DataError, match="data_batch_1 is not a batch of CIFAR's python version"):
        cifar.from_python(batch, 1, "data_batch_1")


@pytest.mark.parametrize("member", ["../data_batch_1.bin", "/etc/data_batch_1.bin", "a/../../b"])
def test_an_archive_that_leaves_its_folder_is_refused(tmp_path, member):
    path = tmp_path / "cifar-10-binary.tar.gz"
    pack(path, {"cifar/data_batch_2.bin": b"x", member: b"y"})
    with pytest.raises(DataError, match=r"refused: its member .* leaves the archive's folder"):
        cifar.read_archive(path, ["data_batch_2.bin"])
    assert list(tmp_path.iterdir()) == [path]


def test_an_archive_with_a_link_is_refused(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("cifar/data_batch_1.bin")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(DataError, match="is no file"):
        cifar.read_archive(path, ["data_batch_1.bin"])


def test_an_archive_cut_short_is_refused(small_cifar, tmp_path):
    name, rows, _ = small_cifar
    path = tmp_path / f"cifar-{name.removeprefix('cifar')}-binary.tar.gz"
    pack(path, {f"folder/{n}": r.tobytes() for n, r in rows.items()})
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match="is damaged or no archive"):
        tensors.load(name, "test", tmp_path)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_the_split_takes_its_share_of_every_class(share):
    labels = torch.arange(1000) % 7
    rest, held = tensors.split(labels, share)
    assert torch.equal(torch.cat([rest, held]).sort().values, torch.arange(1000))
    expected = [round(share * n) for n in labels.bincount().tolist()]
    assert labels[held].bincount().tolist() == expected
    assert torch.equal(tensors.split(labels, share)[1], held)
    assert len(tensors.split(labels, 0.0)[1]) == 0


def test_unknown_parts_and_names():
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        tensors.load("minst", "train")
    with pytest.raises(ValueError, match="'train' or 'test'"):
        tensors.load("digits", "valid")
