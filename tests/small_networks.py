"""Small networks, data and training steps for tests."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

from torch_srelu import SReLU, param_groups


def convnet(act: Callable[[int], nn.Module] = SReLU) -> nn.Sequential:
    """Three activations: after a convolution, a normalised convolution and a linear layer."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3),
        act(6),
        nn.Conv2d(6, 5, 3),
        nn.BatchNorm2d(5),
        act(5),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(5 * 4 * 4, 7),
        act(7),
        nn.Linear(7, 3),
    )


def batches(sizes=(9, 9, 4), dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, 2, 8, 8, generator=generator).to(dtype), torch.arange(n) % 3) for n in sizes
    ]


def sgd(model, **options):
    return torch.optim.SGD(param_groups(model, lr=0.05, weight_decay=1e-3), momentum=0.9, **options)


def train(model, optimizer, data):
    model.train()
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def units(model):
    return {name: unit for name, unit in model.named_modules() if isinstance(unit, SReLU)}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    """Lets torch use so many threads; on tiny tensors, more only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
