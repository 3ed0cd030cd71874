"""The processes that train a network together, and what wraps or shards it for them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside DistributedDataParallel, DataParallel and torch.compile."""
    while True:
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):  # torch.compile
            model = inner
        else:
            return model


def process_group(model: nn.Module) -> dist.ProcessGroup | None:
    """The processes that train ``model`` together; None where there is only this one."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    model = getattr(model, "_orig_mod", model)
    if isinstance(model, DistributedDataParallel):
        group = model.process_group
    else:
        group = _sharing(model) or dist.group.WORLD
    return group if dist.get_world_size(group) > 1 else None


def _sharing(model: nn.Module) -> dist.ProcessGroup | None:
    """The processes that a sharded model is spread over; None if it is not, or over all of them."""
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


@contextlib.contextmanager
def all_or_none(group: dist.ProcessGroup | None) -> Iterator[None]:
    """Turns an error of one process into an error of all: none is left waiting.

    One may be inside of another. What all have heard in the inner one is not told again in the
    outer one, from where the process that failed may have told it.
    """
    if group is None:
        yield
        return
    error = None
    try:
        yield
    except Exception as caught:
        if getattr(caught, "known_to_all", False):
            raise
        error = caught
    for process, text in enumerate(of_all(repr(error) if error else None, group)):
        if text is not None:
            error = error or RuntimeError(f"adapt failed in process {process}: {text}")
            error.known_to_all = True  # type: ignore[attr-defined]
            raise error


def of_all(thing: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """What each process has here, in order."""
    if group is None:
        return [thing]
    things: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(things, thing, group=group)
    return things


def share_buffers(model: nn.Module) -> None:
    """Gives every process the buffers of the first, if DistributedDataParallel does so.

    It does before each forward pass of training, so until then the processes have running
    statistics of their own, and none of these networks but the first is the one that is saved.
    """
    model = getattr(model, "_orig_mod", model)
    if isinstance(model, DistributedDataParallel) and model.broadcast_buffers:
        for name, buffer in model.module.named_buffers():
            if name not in model.parameters_to_ignore:
                dense = buffer.contiguous()
                dist.broadcast(dense, group=model.process_group, group_src=0)
                if dense is not buffer:
                    buffer.copy_(dense)


def sharded_modules(model: nn.Module) -> list[Any]:
    """The modules that `torch.distributed.fsdp.fully_shard` was applied to."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # not imported: not used
    return [m for m in model.modules() if isinstance(m, fsdp.FSDPModule)] if fsdp else []


def device_of(parameter: Tensor) -> torch.device:
    """Where a parameter is computed with; a sharded one may rest on the CPU meanwhile."""
    mesh = getattr(parameter, "device_mesh", None)
    return parameter.device if mesh is None else torch.device(mesh.device_type)
