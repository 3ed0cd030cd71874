"""The idx format of MNIST: a header with the shape, then the bytes."""

from __future__ import annotations

import gzip
import math
import zlib

import torch
from torch import Tensor

from .datasets import DataError

_UNSIGNED_BYTES = 0x08


def unpack(raw: bytes, where: str) -> bytes:
    """The content of a file that may be compressed by gzip."""
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{where} is damaged: {error}") from error


def decode(raw: bytes, where: str) -> Tensor:
    """The array in an idx file of unsigned bytes.

    Args:
        raw: The content: two zero bytes, the type, the rank, the shape as big-endian 32-bit
            integers, the values.
        where: The file's name, for errors.

    Example:
        >>> decode(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 6, 7]), "labels")
        tensor([5, 6, 7], dtype=torch.uint8)
    """
    if len(raw) < 4 or raw[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise DataError(f"{where} is not an idx file of unsigned bytes: it begins {raw[:4]!r}")
    rank = raw[3]
    start = 4 + 4 * rank
    shape = [int.from_bytes(raw[4 + 4 * i :][:4], "big") for i in range(rank)]
    if len(raw) != start + math.prod(shape):
        raise DataError(
            f"{where} is damaged: its header announces {shape}, {start + math.prod(shape):,} bytes "
            f"in all, but it has {len(raw):,}"
        )
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)[start:].reshape(shape)
