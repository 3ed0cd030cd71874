"""The data sets by name, read from datasets.toml: shapes, files and checksums, sources.

A checksum is that of a file's content in the official uncompressed (idx) or binary (CIFAR) form, so
that it holds for every packing: gzip or not, python or binary version, folder or archive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..util.choices import check_choice
from ..util.package_files import read_toml


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


def _read() -> dict[str, DatasetSpec]:
    found = {}
    for name, fields in read_toml("torch_srelu.lab.data", "datasets.toml").items():
        sources = tuple(RemoteFile(*source) for source in fields.pop("sources", {}).items())
        found[name] = DatasetSpec(name, **fields, sources=sources)
    return found


DATASETS = _read()


def dataset(name: str) -> DatasetSpec:
    """The data set of that name.

    Example:
        >>> dataset("cifar100").classes
        100
    """
    check_choice("dataset", name, DATASETS)
    return DATASETS[name]
