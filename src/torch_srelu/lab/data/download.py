"""Downloads from the official sources: with progress, resumed where it stopped, checked."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .datasets import DataError, DatasetSpec, RemoteFile
from .locations import cache_folder

_CHUNK = 1 << 18
_TIMEOUT = 30

Progress = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all if known


def get(
    data: DatasetSpec, root: Path | str | None = None, progress: Progress = lambda *_: None
) -> Path:
    """Downloads what is missing of ``data``; returns the folder or archive that now holds it.

    Args:
        data: The data set.
        root: The data folder; the cache by default.
        progress: Called with the file's name, the bytes at hand and the bytes in all.
    """
    if data.kind == "digits":
        raise DataError(f"{data.name} needs no download: it is part of scikit-learn")
    if not data.sources:
        raise DataError(
            f"{data.name} has no source to download from: put its images into a data folder, as "
            f"{data.folders[0]}/train/CLASS/IMAGE and {data.folders[0]}/val/CLASS/IMAGE or as tar "
            "shards"
        )
    folder = Path(root) if root is not None else cache_folder() / "data"
    if data.kind == "idx":
        folder = folder / data.folders[0]
    folder.mkdir(parents=True, exist_ok=True)
    for source in data.sources:
        _get(source, folder / source.filename, progress)
    return folder if data.kind == "idx" else folder / data.sources[0].filename


def _get(source: RemoteFile, target: Path, progress: Progress) -> None:
    if target.exists() and _md5(target) == source.md5:
        return
    part = target.with_name(target.name + ".part")
    try:
        _fetch(source, part, progress)
    except urllib.error.HTTPError as error:
        raise DataError(f"{source.url} answered {error.code} {error.reason}: try later") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise DataError(
            f"{source.url} cannot be reached ({error}): the same command continues where it "
            f"stopped, or put the file into {target.parent} yourself"
        ) from error
    found = _md5(part)
    if found != source.md5:
        part.unlink()
        raise DataError(
            f"{source.url}: md5 {found}, expected {source.md5}; the download was discarded, try "
            "again"
        )
    os.replace(part, target)


def _fetch(source: RemoteFile, part: Path, progress: Progress) -> None:
    """Appends to ``part`` what it lacks; begins anew if the server cannot continue."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(source.url, headers={"Range": f"bytes={have}-"})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send
            return
        raise
    with response:
        if response.status != 206:
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with open(part, "ab" if have else "wb") as file:
            progress(source.filename, have, total)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(source.filename, have, total)
    if total is not None and have < total:
        raise ConnectionError(f"connection closed after {have:,} of {total:,} bytes")


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
