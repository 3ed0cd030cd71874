"""Checkpoints that survive a process killed at any moment, and a full disk.

A file is a line with the checksum and length of what follows, then what torch.save wrote: tensors
and plain values only. The previous file is kept beside the last one.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from ..util import files

NAME, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
_MAGIC = "torch-srelu checkpoint 1"


class CheckpointWarning(UserWarning):
    """A checkpoint was damaged, and training was resumed from an earlier one or started again."""


def save(folder: Path, state: dict[str, Any]) -> None:
    """Writes ``state``, a dict of tensors and plain values, and keeps the previous checkpoint."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    header = f"{_MAGIC} {hashlib.sha256(payload).hexdigest()} {len(payload)}\n".encode()
    current = folder / NAME
    draft = folder / "checkpoint.next.pt"
    try:
        files.write(draft, header + payload)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot write the checkpoint ({error.strerror}): the one before is untouched; make "
            "room and start the same command again",
            str(current),
        ) from error
    if current.exists():
        os.replace(current, folder / PREVIOUS)
    os.replace(draft, current)


def load(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is not damaged, None if there is none; warns of damaged ones."""
    state, damaged, outcome = None, [], "training begins anew"
    for path in (folder / NAME, folder / PREVIOUS):
        if state is None and path.exists():
            try:
                state = _read(path)
                outcome = f"going on from {path.name}, the one before"
            except ValueError as error:
                damaged.append(str(error))
    if damaged:
        warnings.warn(f"{'; '.join(damaged)}; {outcome}", CheckpointWarning, stacklevel=2)
    return state


def _read(path: Path) -> dict[str, Any]:
    header, _, payload = path.read_bytes().partition(b"\n")
    magic, *rest = header.decode("ascii", "replace").rsplit(" ", 2)
    if magic != _MAGIC or len(rest) != 2:
        raise ValueError(f"{path} is not a checkpoint of this version")
    digest, length = rest
    if hashlib.sha256(payload).hexdigest() != digest:
        raise ValueError(f"{path} is damaged: {len(payload):,} of {length} bytes, wrong checksum")
    return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
