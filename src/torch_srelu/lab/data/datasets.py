"""The data sets by name: shapes, official files with their checksums, official sources.

A checksum is that of a file's content in the official uncompressed (idx) or binary (CIFAR) form, so
that it holds for every packing: gzip or not, python or binary version, folder or archive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..util.choices import check_choice


class DataError(ValueError):
    """Data are missing or damaged: which file, what was expected and found, how to get it."""


@dataclass(frozen=True)
class RemoteFile:
    """A file that the publisher offers: address and published md5."""

    url: str
    md5: str

    @property
    def filename(self) -> str:
        """What the file is called on disk."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class DatasetSpec:
    """A data set as published.

    Attributes:
        name: What the user types.
        kind: How it is read: "digits", "idx", "cifar" or "photographs".
        shape: Channels, height and width of an image.
        classes: Number of classes.
        train: Official files of the training part with the md5 of their content.
        test: Likewise for the test part.
        folders: Where the files may be in a data folder, first match first.
        label_bytes: Bytes before the pixels of a CIFAR record; the last one is the class.
        white: The value of a full pixel.
        superclasses: The superclass of each class, where the data set has them.
        sources: What `srelu data get` downloads.
    """

    name: str
    kind: str
    shape: tuple[int, int, int]
    classes: int
    train: dict[str, str] = field(default_factory=dict)
    test: dict[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    label_bytes: int = 1
    white: int = 255
    superclasses: tuple[int, ...] = ()
    sources: tuple[RemoteFile, ...] = ()

    @property
    def files(self) -> dict[str, str]:
        """All official files with the md5 of their content."""
        return self.train | self.test


def _idx(name: str, folder: str, site: str, *checksums: tuple[str, str]) -> DatasetSpec:
    """MNIST and its relatives; md5 of content and of download for each of the four files."""
    kinds = ("images-idx3", "labels-idx1")
    files = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in kinds]
    contents, downloads = zip(*checksums, strict=True)
    pairs = list(zip(files, contents, strict=True))
    sources = tuple(RemoteFile(f"{site}/{f}.gz", m) for f, m in zip(files, downloads, strict=True))
    folders, shape = (name, folder, f"{folder}/raw", "."), (1, 28, 28)
    return DatasetSpec(
        name, "idx", shape, 10, dict(pairs[:2]), dict(pairs[2:]), folders=folders, sources=sources
    )


def _cifar(name: str, classes: int, folders: tuple[str, ...], md5: str, **more: Any) -> DatasetSpec:
    """CIFAR in either form, from folders or archives; ``md5`` is that of the binary archive."""
    stem = name.replace("cifar", "cifar-")
    folders = (*folders, f"{stem}-binary.tar.gz", f"{stem}-python.tar.gz")
    source = RemoteFile(f"https://www.cs.toronto.edu/~kriz/{stem}-binary.tar.gz", md5)
    more |= {"folders": folders, "sources": (source,)}
    return DatasetSpec(name, "cifar", (3, 32, 32), classes, **more)


def _photographs(name: str, classes: int, *folders: str) -> DatasetSpec:
    """Class folders or tar shards, below "train" and "val". A network sees 224 x 224 of them."""
    return DatasetSpec(name, "photographs", (3, 224, 224), classes, folders=(name, *folders))


# The coarse label that the official files give to each fine label.
# fmt: off
_CIFAR100_SUPERCLASSES = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7,
    6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10,
    16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16,
    12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)
# fmt: on

DATASETS: dict[str, DatasetSpec] = {
    "digits": DatasetSpec("digits", "digits", (1, 8, 8), 10, white=16),
    "mnist": _idx(
        "mnist",
        "MNIST",
        # The author's own site refuses downloads; this copy is the one PyTorch's projects keep.
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
        ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fashion-mnist": _idx(
        "fashion-mnist",
        "FashionMNIST",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
        ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
        ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "cifar10": _cifar(
        "cifar10",
        10,
        ("cifar-10-batches-bin", "cifar-10-batches-py"),
        "c32a1d4ab5d03f1284b67883e8d87530",
        train={
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        },
        test={"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"},
    ),
    "cifar100": _cifar(
        "cifar100",
        100,
        ("cifar-100-binary", "cifar-100-python"),
        "03b5dce01913d631647c71ecec9e9cb8",
        train={"train.bin": "6172c7755cfe09b2fe270c85cebc1b15"},
        test={"test.bin": "4499cfba6c016c1be1438163640a0898"},
        label_bytes=2,
        superclasses=_CIFAR100_SUPERCLASSES,
    ),
    "imagenette": _photographs(
        "imagenette", 10, "imagenette2", "imagenette2-320", "imagenette2-160"
    ),
    "imagenet": _photographs("imagenet", 1000),
}


def dataset(name: str) -> DatasetSpec:
    """The data set of that name.

    Example:
        >>> dataset("cifar100").classes
        100
    """
    check_choice("dataset", name, DATASETS)
    return DATASETS[name]
