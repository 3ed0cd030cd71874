"""WebDataset shards: plain tar files in which KEY.jpg lies beside KEY.cls, the class number.

Shards are read by random access: an index of all images is made once, so that an epoch visits every
image once in an order that depends on the seed alone.
"""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from ..datasets import DataError
from .listing import PARTS, SUFFIXES, Listing, some_of

_NUMBERED = re.compile(r"(.*?)(\d+)\.tar")
_LABEL = ".cls"


def find_shards(root: Path, part: str) -> list[Path]:
    """The shards of a part: ``root/part/*.tar``, or ``root/*part*.tar``; sorted."""
    return sorted((root / part).glob("*.tar")) or sorted(root.glob(f"*{part}*.tar"))


def from_shards(root: Path, part: str) -> Listing:
    """The images in the shards of a part; the names of classes are their numbers.

    A number that is missing among numbered shards is an error, and so is a shard that would be
    taken for both parts.
    """
    shards = find_shards(root, part)
    _check_one_part(root, shards)
    _check_complete(shards)
    names: list[bytes] = []
    labels: list[int] = []
    places: list[tuple[int, int]] = []
    for shard in shards:
        for name, label, offset, length in _index(shard):
            names.append(os.fsencode(f"{shard.relative_to(root)}:{name}"))
            labels.append(label)
            places.append((offset, length))
    if not names:
        raise DataError(f"the shards {shards[0].parent}/*.tar hold no images")
    classes = tuple(str(c) for c in range(max(labels) + 1))
    return Listing(root, classes, torch.tensor(labels), np.array(names), np.array(places))


def _check_one_part(root: Path, shards: list[Path]) -> None:
    """Raises DataError if a shard is named after both parts: its images would be their own test."""
    both = [s for s in shards if s.parent == root and all(part in s.name for part in PARTS)]
    if both:
        raise DataError(
            f"{both[0]} has {' and '.join(PARTS)} in its name, so that both parts would have its "
            f"images: put each part's shards into a folder of its own, {root / PARTS[0]} and "
            f"{root / PARTS[1]}"
        )


def _check_complete(shards: list[Path]) -> None:
    """Shards with numbers are numbered without gaps from 0 or 1."""
    series: dict[tuple[str, int], set[int]] = {}
    for shard in shards:
        if match := _NUMBERED.fullmatch(shard.name):
            stem, digits = match.groups()
            series.setdefault((stem, len(digits)), set()).add(int(digits))
    for (stem, width), numbers in series.items():
        first = min(numbers) if min(numbers) <= 1 else 0
        missing = sorted(set(range(first, max(numbers) + 1)) - numbers)
        if missing:
            named = some_of([f"{stem}{n:0{width}}.tar" for n in missing])
            raise DataError(
                f"{shards[0].parent} lacks {named}: an epoch needs every shard up to the "
                "last, so complete the folder"
            )


def _index(shard: Path) -> list[tuple[str, int, int, int]]:
    """Name, class, offset and length of every image in a shard."""
    images: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(shard, "r:") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                key, _, suffix = path.name.partition(".")
                key, suffix = str(path.parent / key), f".{suffix.lower()}"
                if not member.isfile():
                    continue
                if suffix in SUFFIXES:
                    images[key] = (member.name, member.offset_data, member.size)
                elif suffix == _LABEL:
                    file = archive.extractfile(member)
                    assert file is not None
                    labels[key] = _label(file.read(), f"{shard}:{member.name}")
    except (tarfile.TarError, OSError) as error:
        raise DataError(f"{shard} is damaged or no tar file: {error}") from error
    unlabelled = [name for key, (name, _, _) in images.items() if key not in labels]
    if unlabelled:
        raise DataError(
            f"{shard} has no class for {unlabelled[0]} ({len(unlabelled)} such images): expected a "
            f"file of the same name that ends in {_LABEL} and holds the number of the class"
        )
    return [(name, labels[key], offset, size) for key, (name, offset, size) in images.items()]


def _label(raw: bytes, where: str) -> int:
    text = raw.strip()
    if not text.isdigit():
        raise DataError(f"{where} should hold the number of a class, got {text[:20]!r}")
    return int(text)
