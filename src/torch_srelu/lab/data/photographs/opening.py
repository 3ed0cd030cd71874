"""Opening a data set of photographs, alone or as one of several processes."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from torch_srelu._distributed import of_all

from ...runtime.distributed import ProcessGroup
from ..data_errors import DataError
from .listing import PARTS, Listing, check_same_classes, from_folders
from .shards import find_shards, from_shards


def open_images(root: Path | str, team: ProcessGroup) -> tuple[Listing, Listing]:
    """The listings of "train" and "val" below ``root``, of shards where there are any.

    All processes of a team must see the same files; if one does not, all of them raise the same
    error instead of waiting for each other.

    Args:
        root: The folder with the parts.
        team: This process among those that train together.
    """
    found: tuple[Listing, Listing] | None = None
    problem: str | None = None
    try:
        found = _open(Path(root))
    except DataError as error:
        problem = str(error)
    contents = {} if found is None else found[0].contents() | found[1].contents()
    problem = _first_problem(problem, contents, team)
    if problem is not None:
        raise DataError(problem)
    assert found is not None
    return found


def _open(root: Path) -> tuple[Listing, Listing]:
    train, val = (
        (from_shards if find_shards(root, part) else from_folders)(root, part) for part in PARTS
    )
    check_same_classes(train, val)
    return train, val


def _first_problem(problem: str | None, contents: dict[str, int], team: ProcessGroup) -> str | None:
    """The first problem that any process has, the same for all."""
    if team.world == 1:
        return problem
    reports = of_all((problem, contents), dist.group.WORLD)
    for rank, (told, _) in enumerate(reports):
        if told is not None:
            return f"process {rank}: {told}"
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
