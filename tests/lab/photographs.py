"""Small data sets of photographs, written as real files."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("n01", "n02", "n03")


def encoded(number: int, kind: str = "JPEG", size: tuple[int, int] = (300, 200)) -> bytes:
    """A smooth image that is different for every number; each hundred has a colour of its own."""
    width, height = size
    x, y = np.meshgrid(np.linspace(0, 3, width), np.linspace(0, 3, height))
    waves = [60 * np.sin(x * (c + 1) + number) * np.cos(y + c) for c in range(3)]
    planes = [wave + (180 if c == number // 100 else 80) for c, wave in enumerate(waves)]
    buffer = io.BytesIO()
    Image.fromarray(np.stack(planes, -1).astype(np.uint8)).save(buffer, kind)
    return buffer.getvalue()


def write_folders(
    root: Path, train: int = 4, val: int = 2, classes: Sequence[str] = CLASSES
) -> Path:
    """Class folders with that many images a class."""
    for part, count in (("train", train), ("val", val)):
        for c, name in enumerate(classes):
            folder = root / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}.JPEG").write_bytes(encoded(100 * c + i))
    return root


def write_shard(path: Path, members: dict[str, bytes]) -> None:
    """A tar file with these members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def write_shards(root: Path, train: int = 4, val: int = 2, shards: int = 2) -> Path:
    """The images of `write_folders` in tar shards, the classes mixed."""
    for part, count in (("train", train), ("val", val)):
        images = [(c, i) for i in range(count) for c in range(len(CLASSES))]
        for number in range(shards):
            members: dict[str, bytes] = {}
            for c, i in images[number::shards]:
                members[f"{c}_{i}.jpg"] = encoded(100 * c + i)
                members[f"{c}_{i}.cls"] = str(c).encode()
            write_shard(root / f"{part}-{number:06}.tar", members)
    return root
