"""recompute_outputs in two processes: DDP, and FSDP2, which frees parameters in between."""

import contextlib

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from small_networks import same
from torch_srelu import SReLU, param_groups, recompute_outputs
from two_processes import run_in_two_processes


def network() -> nn.Sequential:
    torch.manual_seed(0)
    units = [SReLU(6, t_r=0.3, a_r=0.5, t_l=-0.3) for _ in range(2)]
    return nn.Sequential(nn.Linear(4, 6), units[0], nn.Linear(6, 6), units[1], nn.Linear(6, 3))


def replicated() -> nn.Module:
    return DistributedDataParallel(network())


def sharded() -> nn.Module:
    """Layer by layer: when one needs a unit's output, that unit's parameters are gone."""
    model, mesh = network(), init_device_mesh("cpu", (2,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def trained(model: nn.Module, rank: int, context) -> list[torch.Tensor]:
    """The parameters, or this process's parts of them, after some steps."""
    optimizer = torch.optim.SGD(param_groups(model, lr=0.1), momentum=0.9)
    x = torch.randn(3, 16, 4, generator=torch.Generator().manual_seed(rank))
    for batch in x:
        optimizer.zero_grad()
        with context():
            loss = model(batch).square().sum()
        loss.backward()
        optimizer.step()
    return [getattr(p, "to_local", lambda p=p: p)().detach() for p in model.parameters()]


def both(rank, group):
    for wrap in (replicated, sharded):
        expected = trained(wrap(), rank, contextlib.nullcontext)
        assert not same(expected, [p.detach() for p in network().parameters()])
        assert same(trained(wrap(), rank, recompute_outputs), expected), wrap.__name__


@pytest.mark.usefixtures("one_thread")
def test_training_is_the_same_with_ddp_and_fsdp2(tmp_path):
    run_in_two_processes(both, tmp_path)
