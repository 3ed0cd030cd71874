"""Models that several processes train: wrappers, process groups, collectives, sharding."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ._torch_compat import uncompiled


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside DistributedDataParallel, DataParallel and torch.compile."""
    inner = uncompiled(model)
    if isinstance(inner, (DistributedDataParallel, DataParallel)):
        inner = inner.module
    return model if inner is model else unwrap(inner)


def process_group(model: nn.Module) -> dist.ProcessGroup | None:
    """The processes that train ``model`` together; None where there is only this one."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    model = uncompiled(model)
    if isinstance(model, DistributedDataParallel):
        group = model.process_group
    else:
        group = _sharding_group(model) or dist.group.WORLD
    return group if dist.get_world_size(group) > 1 else None


def _sharding_group(model: nn.Module) -> dist.ProcessGroup | None:
    """The process group over which a model is sharded; None if it is not, or over all processes."""
    meshes = (getattr(p, "device_mesh", None) for p in model.parameters())
    mesh = next((mesh for mesh in meshes if mesh is not None), None)
    if mesh is None or mesh.size() == dist.get_world_size():
        return None
    if mesh.ndim > 1:
        raise ValueError(
            f"the model is sharded over a mesh of shape {tuple(mesh.shape)}, a part of all "
            f"{dist.get_world_size()} processes: adapt needs a mesh of one dimension, or of all"
        )
    return mesh.get_group()


def all_gather_objects(value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """``value`` of each process, by rank."""
    if group is None:
        return [value]
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


@contextlib.contextmanager
def raise_on_all_ranks(group: dist.ProcessGroup | None) -> Iterator[None]:
    """Raises an error of one process in all of them, so that none waits for it forever.

    In nested contexts, an error that the inner one has raised everywhere passes the outer one,
    where other processes are not waiting to hear of it.
    """
    if group is None:
        yield
        return
    error = None
    try:
        yield
    except Exception as caught:
        if getattr(caught, "on_all_ranks", False):
            raise
        error = caught
    for rank, text in enumerate(all_gather_objects(repr(error) if error else None, group)):
        if text is not None:
            error = error or RuntimeError(f"adapt failed in process {rank}: {text}")
            error.on_all_ranks = True  # type: ignore[attr-defined]
            raise error


def broadcast_buffers(model: nn.Module) -> None:
    """Gives every process the buffers of rank 0, if DistributedDataParallel does so.

    It does before each forward pass of training, so until then the processes have running
    statistics of their own, and none of these networks but that of rank 0 is the one that is saved.
    """
    model = uncompiled(model)
    if isinstance(model, DistributedDataParallel) and model.broadcast_buffers:
        for name, buffer in model.module.named_buffers():
            if name not in model.parameters_to_ignore:
                dense = buffer.contiguous()
                dist.broadcast(dense, group=model.process_group, group_src=0)
                if dense is not buffer:
                    buffer.copy_(dense)


def fsdp_modules(model: nn.Module) -> list[Any]:
    """The modules that `torch.distributed.fsdp.fully_shard` was applied to."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # not imported: not used
    return [m for m in model.modules() if isinstance(m, fsdp.FSDPModule)] if fsdp else []


def compute_device(parameter: Tensor) -> torch.device:
    """The device that computes with a parameter, which may be offloaded to the CPU if sharded."""
    mesh = getattr(parameter, "device_mesh", None)
    return parameter.device if mesh is None else torch.device(mesh.device_type)


def full_tensor(parameter: Tensor) -> Tensor:
    """The values of a parameter, gathered from all processes if it is sharded."""
    gather = getattr(parameter, "full_tensor", None)
    return (gather() if gather else parameter).detach()


def copy_full_tensor(parameter: Tensor, value: Tensor) -> None:
    """Copies a full tensor into a parameter; each process its shard if it is sharded."""
    if hasattr(parameter, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor  # heavy, and needed only here

        value = distribute_tensor(value, parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    parameter.copy_(value)
