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
    found, problem = None, None
    try:
        found = _open(Path(root))
    except DataError as error:
        problem = str(error)
    contents = found[0].contents() | found[1].contents() if found else {}
    problem = _first_problem(problem, contents, group)
    if problem is not None or found is None:
        raise DataError(problem)
    return found


def _open(root: Path) -> tuple[Listing, Listing]:
    train, val = (
        (from_shards if find_shards(root, part) else from_folders)(root, part) for part in PARTS
    )
    check_same_classes(train, val)
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
