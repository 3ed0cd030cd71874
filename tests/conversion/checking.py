"""What it means that a network is converted."""

import copy
import itertools
from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch_srelu as ts

RECTIFIERS = {"relu", "relu_", "leaky_relu", "leaky_relu_", "_prelu_kernel", "prelu", "hardtanh",
              "hardtanh_"}  # fmt: skip


class Rectifiers(TorchDispatchMode):
    """Counts the rectifiers that run below Python: what convert must find, by another way."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))

    def total(self):
        return sum(self.count[name] for name in RECTIFIERS)


def run(net, x):
    """All outputs of the network and how many rectifiers ran."""
    torch.manual_seed(0)
    with Rectifiers() as rectifiers:
        out = net(x)
    leaves = tree_leaves(tuple(out) if isinstance(out, tuple) else out)
    return leaves, rectifiers.total()


def units(net):
    return [m for m in net.modules() if isinstance(m, ts.SReLU)]


def sizes(net, *paths):
    """Channels and channel dimension of these units."""
    found = [net.get_submodule(path) for path in paths]
    return [(unit.num_channels, unit.dim) for unit in found]


def loss(outputs):
    return torch.stack([t.square().mean() for t in outputs]).sum()


def assert_same(before, after):
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b)


def assert_converted(net, x, example=None, **options):
    """Converts, and checks that outputs and gradients are those of the original."""
    original = copy.deepcopy(net)
    assert ts.convert(net, example, **options) is net
    before, count = run(original, x.clone())
    after, rest = run(net, x.clone())
    assert_same(before, after)
    assert rest == 0
    assert count > 0
    loss(before).backward()
    loss(after).backward()
    new = dict(net.named_parameters())
    for name, p in original.named_parameters():
        if p.grad is not None and name in new:
            if new[name].grad is None:
                # The weight of a functional PReLU: its gradient moved into the unit.
                (unit,) = units(net)
                torch.testing.assert_close(p.grad, unit.a_l.grad)
            else:
                assert torch.equal(p.grad, new[name].grad)
    return count


# ---- networks for more than one file ----


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.relu(self.a(x))
        x = self.relu(self.b(x))
        return self.relu(self.c(x))


class Loop(nn.Module):
    def __init__(self, widths=(4, 6, 8)):
        super().__init__()
        self.act = nn.ReLU()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(widths))

    def forward(self, x):
        """Runs the layers."""
        for layer in self.layers:
            x = self.act(layer(x))
            x = F.leaky_relu(x - 0.1)
        return x
