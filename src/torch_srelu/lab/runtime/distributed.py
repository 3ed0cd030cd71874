"""Process groups of data-parallel training under torchrun, and the choice of a device."""

from __future__ import annotations

import atexit
import importlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..._text import counted


def world_size() -> int:
    """The number of processes that torchrun started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train a network together, and the rank of this one."""

    rank: int = 0
    world: int = 1

    @property
    def is_rank_0(self) -> bool:
        """Whether this process writes the record."""
        return self.rank == 0

    def share(self, batch: int) -> slice:
        """The part of a batch that this process trains on."""
        size = batch // self.world
        return slice(self.rank * size, (self.rank + 1) * size)

    def broadcast(self, value: Any) -> Any:
        """``value`` of rank 0, on every rank."""
        values = [value]
        if self.world > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def sum(self, tensor: Tensor) -> None:
        """Replaces ``tensor`` by its sum over all processes."""
        if self.world > 1:
            dist.all_reduce(tensor)

    def average_gradients(self, gradients: Sequence[Tensor]) -> Tensor:
        """Replaces gradients by their mean over all processes; also returns them as one vector.

        One sum in a fixed order: a resumed run adds in the same order as one that was never
        stopped, which buckets that are rebuilt at each start do not promise.
        """
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        if self.world > 1:
            dist.all_reduce(flat)
            flat /= self.world
            parts = flat.split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view(gradient.shape))
        return flat


def init_process_group(world: int, device: torch.device) -> ProcessGroup:
    """The process group of torchrun, of ``world`` processes; initialized at the first call."""
    started = world_size()
    if started != world:
        raise ValueError(
            f"the run's world is {world}, but the number of processes started is {started}: use "
            f"`torchrun --nproc-per-node {world} -m torch_srelu ...`, or change the run's world"
        )
    if world == 1:
        return ProcessGroup()
    if not dist.is_initialized():
        # Imported later, as the compiler does, it would keep the group in default arguments: then
        # the group's threads outlive destroy_process_group, and one that frees a tensor while the
        # interpreter exits aborts the process.
        importlib.import_module("torch.distributed.nn.functional")
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    return ProcessGroup(dist.get_rank(), world)


def choose_device(wanted: torch.device | str | None = None) -> torch.device:
    """The device to train on; by default the GPU of this process if there is one, else the CPU."""
    if wanted is None:
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = str(wanted).partition(":")
    if not re.fullmatch(r"(cpu|cuda)(:\d+)?", str(wanted)):
        raise ValueError(f"unknown device {str(wanted)!r}: choose cpu, cuda or cuda:0")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees no CUDA device: choose cpu")
    if kind == "cuda" and index and int(index) >= torch.cuda.device_count():
        count = counted(torch.cuda.device_count(), "CUDA device")
        raise ValueError(f"device {wanted} was asked for, but torch sees {count}: they begin at 0")
    if kind == "cuda" and not index:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device(wanted)
