"""Finds the photographs of a data set, the same in every process."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from torch_srelu._data_parallel import all_gather_objects

from ...runtime.distributed import ProcessGroup
from ..datasets import DataError
from .listing import PARTS, Listing, check_same_classes, from_folders
from .shards import find_shards, from_shards


def open_images(root: Path | str, group: ProcessGroup) -> tuple[Listing, Listing]:
    """The listings of "train" and "val" below ``root``, of shards where there are any.

    All processes must see the same files; if one does not, all of them raise the same
    error instead of waiting for each other.

    Args:
        root: The folder with the parts.
        group: The processes that train together.
    """
    root, problem, contents, found = Path(root), None, {}, []
    try:
        for part in PARTS:
            found.append((from_shards if find_shards(root, part) else from_folders)(root, part))
            contents |= found[-1].contents()
        check_same_classes(*found)
    except DataError as error:
        problem = str(error)
    problem = _first_problem(problem, contents, group)
    if problem is not None:
        raise DataError(problem)
    train, val = found
    return train, val


def _first_problem(
    problem: str | None, contents: dict[str, int], group: ProcessGroup
) -> str | None:
    """The first problem that any process has, the same for all."""
    if group.world == 1:
        return problem
    reports = all_gather_objects((problem, contents), dist.group.WORLD)
    for rank, (reported, _) in enumerate(reports):
        if reported is not None:
            return f"process {rank}: {reported}"
    _, first = reports[0]
    for rank, (_, other) in enumerate(reports):
        differing = sorted(name for name in first | other if first.get(name) != other.get(name))
        if differing:
            name = differing[0]
            return (
                f"process {rank} sees {other.get(name, 0):,} images in {name} where process 0 sees "
                f"{first.get(name, 0):,}: every process needs all files"
            )
    return None
