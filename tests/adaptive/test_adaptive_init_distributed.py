"""Adaptive initialisation in two real processes: DDP, FSDP2, errors on one side."""

import math

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

from torch_srelu import AdaptiveInit, SReLU, param_groups
from torch_srelu.optim import srelu_parameters
from two_processes import run_in_two_processes

UNITS = ("1", "3")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), SReLU(6), nn.Linear(6, 5), SReLU(5), nn.Linear(5, 3))


def optimizer_of(model):
    return torch.optim.SGD(param_groups(model, lr=0.1, weight_decay=1e-3), momentum=0.9)


def data(n=64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 4, generator=generator), torch.arange(n) % 3


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def whole(p):
    return (p.full_tensor() if hasattr(p, "full_tensor") else p).detach()


def by_sorting(model, batches):
    """The 0.9 quantile of the inputs of both units."""
    inputs = {"1": [], "3": []}
    with torch.no_grad():
        for x in batches:
            inputs["1"].append(model[0](x))
            inputs["3"].append(model[2](model[1](inputs["1"][-1])))
    values = {name: torch.cat(parts).sort(0).values for name, parts in inputs.items()}
    return {name: v[-(-9 * len(v) // 10) - 1] for name, v in values.items()}


def by_hand(x, y):
    """The whole method in one process, without AdaptiveInit."""
    model = network()
    optimizer = optimizer_of(model)
    for frozen, steps in ((True, 2), (False, 3)):
        for name in UNITS:
            model.get_submodule(name).frozen = frozen  # type: ignore[assignment]
        for _ in range(steps):
            step(model, optimizer, x, y)
        if frozen:
            for name, value in by_sorting(model, [x]).items():
                model.get_parameter(f"{name}.t_r").data.copy_(value)
            for p in srelu_parameters(model).values():
                optimizer.state.pop(p)
    return model


def test_two_processes(tmp_path):
    run_in_two_processes(_everything, tmp_path)


def _everything(rank, group):
    # One pair of processes for all: starting them takes longer than the tests.
    for test in (
        ddp, running_statistics, uneven_shares, error_on_one_side, fsdp, fsdp_without_data,
        fsdp_with_a_loader_that_fails, fsdp_with_a_forward_that_fails, two_sharded_models, padding,
        sharded_optimizer,
    ):  # fmt: skip
        test(rank)


def ddp(rank):
    """Equals sorting the data of both; the ranks stay equal, and match one process."""
    x, y = data()
    model = DistributedDataParallel(network())
    optimizer = optimizer_of(model)
    init = AdaptiveInit(model, optimizer)
    for _ in range(2):
        step(model, optimizer, x[rank::2], y[rank::2])
    expected = by_sorting(model.module, [part for r in range(2) for part in x[r::2].split(8)])
    init.adapt(list(x[rank::2].split(8)))
    for name, value in expected.items():
        assert torch.equal(model.module.get_parameter(f"{name}.t_r").detach(), value)
    for _ in range(3):
        step(model, optimizer, x[rank::2], y[rank::2])
    alone = by_hand(x, y)
    for name, p in model.module.named_parameters():
        both = [torch.empty_like(p) for _ in range(2)]
        dist.all_gather(both, p.detach())
        assert torch.equal(both[0], both[1]), name
        torch.testing.assert_close(
            p, alone.get_parameter(name)
        )  # gradients are averaged, not summed
    assert not torch.equal(model.module.get_parameter("1.t_r").detach(), expected["1"])


def running_statistics(rank):
    """All processes measure the network of the first, which is the one that is saved."""
    x, y = data()
    x = x + 4 * (torch.arange(64) % 2)[:, None]  # the processes see unlike data
    share = x[rank::2]
    for options in ({}, {"broadcast_buffers": False}):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), SReLU(6), nn.Linear(6, 3))
        table = torch.zeros(2, 3)
        net.register_buffer("column", table[:, 1])  # not dense: the columns beside it are others'
        model = DistributedDataParallel(net, **options)
        optimizer = optimizer_of(model)
        init = AdaptiveInit(model, optimizer)
        for _ in range(2):
            step(model, optimizer, share, y[rank::2])
        states = [{}, {}]
        dist.all_gather_object(states, net.state_dict())
        inputs = []
        for r in range(2):
            net.load_state_dict(states[r if options else 0])
            with torch.no_grad():
                inputs += [net.eval()[:2](part) for part in x[r::2].split(8)]
        net.train().load_state_dict(states[rank])
        assert not torch.equal(states[0]["1.running_mean"], states[1]["1.running_mean"])
        net.column.fill_(rank)
        init.adapt(list(share.split(8)))
        ours = rank if options else 0
        assert torch.equal(table, torch.tensor([[0.0, ours, 0.0]] * 2))
        values = torch.cat(inputs).sort(0).values
        assert torch.equal(net[2].t_r.detach(), values[-(-9 * len(values) // 10) - 1])


def uneven_shares(rank):
    x, _ = data()
    for shares in ([x[:48], x[48:]], [x[:0], x]):
        model = network()
        expected = by_sorting(model, [part for share in shares for part in share.split(8)])
        wrapped = DistributedDataParallel(model)
        init = AdaptiveInit(wrapped, optimizer_of(model))
        loader = list(shares[rank].split(8)) if len(shares[rank]) else []
        init.adapt(loader)
        for name, value in expected.items():
            assert torch.equal(model.get_parameter(f"{name}.t_r").detach(), value)
        assert init._result is not None
        assert init._result["1"]["inputs"] == 64


def error_on_one_side(rank):
    x, _ = data()
    bad = x.clone()
    bad[3] = math.nan

    def broken(model, batch):
        if rank == 1:
            raise ZeroDivisionError("broken")
        return model(batch)

    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    init = AdaptiveInit(DistributedDataParallel(model), optimizer_of(model))
    with pytest.raises(ValueError, match="input of 1: NaN"):
        init.adapt([x, bad if rank == 1 else x])
    error, message = (ZeroDivisionError, "^broken") if rank else (RuntimeError, "process 1: Zero")
    with pytest.raises(error, match=message):
        init.adapt([x], broken)
    error, message = (TypeError, "only once") if rank else (RuntimeError, "process 1: TypeError")
    with pytest.raises(error, match=message):
        init.adapt(iter([x]) if rank else [x])
    with pytest.raises(ValueError, match="the loader is empty"):
        init.adapt([])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(model.get_submodule(name).frozen for name in UNITS)
    init.adapt([x])
    assert init.adapted


def sharded() -> nn.Module:
    model = network()
    mesh = init_device_mesh("cpu", (2,))
    for layer in (model[0], model[1]):  # a unit of its own, the other with the rest
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def fsdp(rank):
    """Sharded parameters; the ranks have different numbers of batches."""
    x, y = data()
    shares = [list(x[:40].split(8)), list(x[40:].split(8))]
    model, plain = sharded(), network()
    optimizer = optimizer_of(model)
    init = AdaptiveInit(model, optimizer)
    for _ in range(2):
        step(model, optimizer, x[rank::2], y[rank::2])
    plain.load_state_dict({name: whole(p) for name, p in model.named_parameters()})
    expected = by_sorting(plain, [part for share in shares for part in share])
    init.adapt(shares[rank])
    assert not any(p in optimizer.state for p in srelu_parameters(model).values())
    assert len(optimizer.state) == 6  # three linear layers
    for name, value in expected.items():
        p = model.get_parameter(f"{name}.t_r")
        assert hasattr(p, "full_tensor")
        assert torch.equal(whole(p), value)
    for _ in range(2):
        step(model, optimizer, x[rank::2], y[rank::2])
    assert all(
        not torch.equal(whole(p), expected[n[0]])
        for n, p in model.named_parameters()
        if n.endswith("t_r")
    )


def fsdp_without_data(rank):
    x, _ = data()
    model = sharded()
    init = AdaptiveInit(model, optimizer_of(model))
    with pytest.raises(ValueError, match="process 1 has no data"):
        init.adapt([] if rank == 1 else [x])


class Failing:
    """A loader that breaks in one process after the first batch."""

    def __init__(self, rank):
        self.rank = rank

    def __iter__(self):
        x, _ = data()
        yield x
        if self.rank == 1:
            raise OSError("disk")
        yield x


def fsdp_with_a_loader_that_fails(rank):
    model = sharded()
    init = AdaptiveInit(model, optimizer_of(model))
    error, message = (OSError, "^disk") if rank else (RuntimeError, "process 1: OSError")
    with pytest.raises(error, match=message):
        init.adapt(Failing(rank))


def fsdp_with_a_forward_that_fails(rank):
    """Behind the network, where no process waits for the parameters of another."""
    x, _ = data()

    def broken(model, batch):
        model(batch)
        if rank == 1 and len(batch) == 1:
            raise IndexError("no such class")

    model = sharded()
    init = AdaptiveInit(model, optimizer_of(model))
    error, message = (IndexError, "^no such") if rank else (RuntimeError, "process 1: IndexError")
    for batches in ([x, x[:1], x], [x[:1]]):
        with pytest.raises(error, match=message):
            init.adapt(batches, broken)
    init.adapt([x], broken)


def two_sharded_models(rank):
    """Each process has a model of its own, sharded over itself alone."""
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("models", "shards"))
    x = data()[0] + 100 * rank
    model = nn.Sequential(SReLU(4), nn.Linear(4, 2))
    fully_shard(model, mesh=mesh["shards"])
    AdaptiveInit(model, optimizer_of(model)).adapt([x])
    assert torch.equal(whole(model[0].t_r), x.sort(0).values[-(-9 * len(x) // 10) - 1])
    mesh = init_device_mesh("cpu", (2, 1, 1), mesh_dim_names=("models", "copies", "shards"))
    model = fully_shard(nn.Sequential(SReLU(4)), mesh=mesh["copies", "shards"])
    with pytest.raises(ValueError, match=r"mesh of shape \(1, 1\), a part of all 2 processes"):
        AdaptiveInit(model, optimizer_of(model)).adapt([x])


def padding(rank):
    x, _ = data(9)
    dataset = TensorDataset(x)
    sampler = DistributedSampler(dataset)
    for loader in (
        DataLoader(dataset, 2, sampler=sampler),
        DataLoader(dataset, batch_sampler=BatchSampler(sampler, 2, drop_last=False)),
    ):
        model = network()
        init = AdaptiveInit(DistributedDataParallel(model), optimizer_of(model))
        init.adapt(loader)
        assert "1 sample read twice" in init.summary()


def sharded_optimizer(rank):
    """Each process keeps what a part of the optimizer remembers: together they do as a whole."""
    x, y = data()

    def trained(optimizer_for):
        model = DistributedDataParallel(network())
        optimizer = optimizer_for(param_groups(model, lr=0.01))
        init = AdaptiveInit(model, optimizer)
        for _ in range(3):
            step(model, optimizer, x[rank::2], y[rank::2])
        init.adapt([x[rank::2]])
        for _ in range(2):
            step(model, optimizer, x[rank::2], y[rank::2])
        return model.module.state_dict()

    plain = trained(torch.optim.Adam)
    parts = trained(lambda groups: ZeroRedundancyOptimizer(groups, torch.optim.Adam, lr=0.01))
    for name, value in plain.items():
        assert torch.equal(parts[name], value), name
