"""CIFAR's two official forms, binary and python, from a folder or an archive.

The binary form is a row of bytes an image: one label (CIFAR-100: coarse, then fine), then the red,
green and blue planes. The python form is a pickle of a dict; it is read without executing anything
and turned into the same rows.
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .datasets import DataError

PIXELS = 3 * 32 * 32


def decode(raw: bytes, label_bytes: int, where: str) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels (N,), both uint8, of a binary file."""
    width = label_bytes + PIXELS
    if not raw or len(raw) % width:
        raise DataError(
            f"{where} is damaged: {len(raw):,} bytes are no whole number of records of {width}"
        )
    rows = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, width)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].clone()


def from_python(raw: bytes, label_bytes: int, where: str) -> bytes:
    """The python form of a file in its binary form."""
    try:
        batch = _Unpickler(io.BytesIO(raw), encoding="latin1").load()
        names = ("labels",) if label_bytes == 1 else ("coarse_labels", "fine_labels")
        columns = [np.asarray(batch[name], dtype=np.uint8)[:, None] for name in names]
        pixels = np.asarray(batch["data"])
        if pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
            raise ValueError(f"its pixels are {pixels.dtype} of shape {pixels.shape}")
        return np.concatenate([*columns, pixels], axis=1).tobytes()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{where} is not a batch of CIFAR's python version: {error!r}") from error


class _Unpickler(pickle.Unpickler):
    """Unpickles dicts, lists, numbers, strings and numpy arrays; refuses anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _empty_array
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise DataError(
            f"refused to unpickle {module}.{name}: CIFAR's files hold numpy arrays and nothing else"
        )


def _empty_array(kind: type, shape: tuple[int, ...], code: bytes) -> np.ndarray:
    """What numpy's pickles call first; the array's state is set after."""
    if kind is not np.ndarray:
        raise DataError(f"refused to unpickle a {kind!r}")
    return np.ndarray(shape, dtype="b")


def _encode(text: str, encoding: str) -> bytes:
    """How python 3 writes bytes into old pickles."""
    if encoding not in ("latin1", "latin-1"):
        raise DataError(f"refused to unpickle text encoded as {encoding!r}")
    return text.encode("latin1")


def read_archive(path: Path, wanted: Iterable[str]) -> dict[str, bytes]:
    """The files of a tar archive by their last name, for those that are ``wanted``.

    Nothing is extracted to disk. An archive with a path that leaves its folder, or with a link, is
    refused as a whole: it is not the official one.
    """
    wanted = set(wanted)
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or "\\" in member.name:
                    raise DataError(
                        f"{path} is refused: its member {member.name!r} leaves the archive's folder"
                    )
                if not (member.isfile() or member.isdir()):
                    raise DataError(f"{path} is refused: its member {member.name!r} is no file")
                if member.isfile() and name.name in wanted:
                    file = archive.extractfile(member)
                    assert file is not None
                    found[name.name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        reason = str(error).partition("\n")[0]  # below it, tarfile lists all that it tried
        raise DataError(f"{path} is damaged or no archive: {reason.rstrip(':')}") from error
    return found
