"""Loaders are read again with the same random numbers."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from torch_srelu.adaptive.loader_replay import RandomState, fresh_workers


class Augmented(Dataset):
    """Samples disturbed by all three global generators."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        noise = torch.rand(()) + random.random() + np.random.random()  # noqa: NPY002
        return torch.tensor([float(index), noise])


def workers(loader: Any) -> list[Any]:
    return loader._iterator._workers


def read(loader):
    return torch.cat([torch.as_tensor(batch) for batch in loader])


def read_twice(loader):
    state = RandomState(loader)
    results = []
    for _ in range(2):
        state.restore()
        with fresh_workers(loader):
            results.append(read(loader))
    return results


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # DataLoader forks, threads or not
def test_shuffling_and_augmenting_loaders_are_replayed():
    mine = torch.Generator().manual_seed(3)
    loaders = [
        DataLoader(Augmented(), 5, shuffle=True),
        DataLoader(Augmented(), 5, shuffle=True, generator=mine),
        DataLoader(Augmented(), 5, sampler=RandomSampler(Augmented(), generator=mine)),
        DataLoader(Augmented(), 5, shuffle=True, num_workers=2),
        DataLoader(Augmented(), 5, shuffle=True, num_workers=1, persistent_workers=True),
    ]
    for loader in loaders:
        first, second = read_twice(loader)
        assert torch.equal(first, second)
        assert not torch.equal(first, read(loader))  # without a replay it differs


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # DataLoader forks, threads or not
def test_persistent_workers_are_paused_and_go_on():
    loader = DataLoader(Augmented(), 5, num_workers=1, persistent_workers=True)
    read(loader)
    (worker,) = workers(loader)
    with fresh_workers(loader):
        read(loader)
        (other,) = workers(loader)
        assert other.pid != worker.pid
    assert not other.is_alive()
    assert workers(loader) == [worker]
    assert len(read(loader)) == 12
    assert worker.is_alive()


def test_state_is_that_of_the_construction():
    state = RandomState()
    numbers = [(torch.rand(1).item(), random.random(), np.random.random())]  # noqa: NPY002
    state.restore()
    numbers.append((torch.rand(1).item(), random.random(), np.random.random()))  # noqa: NPY002
    assert numbers[0] == numbers[1]


def test_samplers_may_read_samplers():
    x: Any = torch.arange(12.0)
    mine = RandomSampler(x, generator=torch.Generator().manual_seed(3))
    batches = BatchSampler(mine, 5, drop_last=True)
    for loader in (
        DataLoader(x, batch_sampler=batches),
        DataLoader(x, batch_size=None, sampler=batches),
    ):
        first, second = read_twice(loader)
        assert torch.equal(first, second)
        assert not torch.equal(first, read(loader))


def test_a_loader_need_not_be_a_dataloader():
    loader = [torch.ones(2), torch.zeros(2)]
    first, second = read_twice(loader)
    assert torch.equal(first, second)
    plain = DataLoader(TensorDataset(torch.ones(2)), batch_sampler=[[0], [1]])
    RandomState(plain).restore()
