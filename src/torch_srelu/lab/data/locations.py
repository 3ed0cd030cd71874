"""Finds data sets on disk and verifies their checksums."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from ..util import files
from .datasets import DataError, DatasetSpec

VARIABLE = "SRELU_DATA"


def cache_folder() -> Path:
    """Where downloads and computed statistics are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "torch-srelu"


def data_folders(root: Path | str | None = None) -> list[Path]:
    """The folders that are searched, in this order: ``root``, $SRELU_DATA, the cache."""
    folders = [Path(root)] if root is not None else []
    if os.environ.get(VARIABLE):
        folders.append(Path(os.environ[VARIABLE]))
    return [*folders, cache_folder() / "data"]


def find(data: DatasetSpec, root: Path | str | None = None) -> Path | None:
    """The folder or archive that holds ``data``; None if there is none."""
    for folder in data_folders(root):
        for name in data.folders:
            place = folder / name
            if place.is_file() or (place.is_dir() and _holds(data, place)):
                return place
    return None


def locate(data: DatasetSpec, root: Path | str | None = None) -> Path:
    """Like `find`, but raises DataError, which says where it looked, if there is none."""
    place = find(data, root)
    if place is None:
        looked = ", ".join(str(folder) for folder in data_folders(root))
        get = f"get it with `srelu data get {data.name}`, or " if data.sources else ""
        raise DataError(
            f"{data.name} was not found in {looked}: {get}name the folder that holds "
            f"{data.folders[0]} with --data (in Python: data_root) or {VARIABLE}"
        )
    return place


def names_on_disk(data: DatasetSpec, name: str) -> list[str]:
    """The names that an official file may have on disk, in its different packings."""
    return [name, f"{name}.gz"] if data.kind == "idx" else [name, name.removesuffix(".bin")]


def _holds(data: DatasetSpec, folder: Path) -> bool:
    """Whether any file of ``data`` is there; photographs have no names of their own."""
    names = [found for name in data.files for found in names_on_disk(data, name)]
    return data.kind == "photographs" or any((folder / name).is_file() for name in names)


def verify(data: DatasetSpec, name: str, content: bytes, path: Path) -> None:
    """Raises DataError if ``content`` of the official file ``name`` is not what was published.

    The checksums of files that were verified and have not changed since are not computed again.
    """
    expected = data.files[name]
    status = path.stat()
    mark = [status.st_size, status.st_mtime_ns, expected]
    entry = f"{path.resolve()}:{name}"
    if _verified().get(entry) == mark:
        return
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(
            f"{path}: the content of {name} has md5 {found}, expected {expected}. It is damaged or "
            f"not the official file; remove it, then get it with `srelu data get {data.name}`"
        )
    # A cache that cannot be written costs time, not correctness.
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        text = json.dumps(_verified() | {entry: mark}, indent=1)
        files.write(cache_folder() / "verified.json", text.encode())


def _verified() -> dict[str, list]:
    try:
        return json.loads((cache_folder() / "verified.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
