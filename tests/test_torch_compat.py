"""Without a private name of torch, its fallback works."""

import importlib.util
import subprocess
import sys

import pytest

from torch_srelu import _torch_compat

# Torch itself needs its names, so they are missing only while the package is imported.
WITHOUT = """
import importlib
import torch
module = importlib.import_module("{module}")
found = vars(module).pop("{name}")
import torch_srelu as ts
setattr(module, "{name}", found)
from torch_srelu import _torch_compat
assert getattr(_torch_compat, "{name}") is not found
"""

CONVERT = """
import copy
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True)
        self.linear = nn.Linear(4, 5)

    def forward(self, x, scale):
        x = self.act(self.norm(self.conv(x["image"][0])))
        return dict(out=[torch.relu(self.linear(x.mean((-2, -1)))) * scale])

net = Net().eval()
x = dict(x=dict(image=(torch.randn(2, 3, 9, 9),)), scale=2.0)
before, state = net(**x), copy.deepcopy(net.state_dict())
ts.convert(net, x)
assert net.act.num_channels == 4
assert torch.equal(net(**x)["out"][0], before["out"][0])
assert all(torch.equal(net.state_dict()[name], value) for name, value in state.items())
net = ts.convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
assert net[1].num_channels == 4

from torch_srelu.integrations.unsized import UnsizedSReLU
net = nn.Sequential(nn.Sequential(nn.Linear(4, 6), UnsizedSReLU(-1)))
assert net[0][1].num_channels == 6
"""

CONTAINERS = """
import collections
Pair = collections.namedtuple("Pair", "a b")
tree = {"x": [1, (2.0, Pair(3, "y"))], "none": None}
negated = _torch_compat.tree_map_only(int, lambda x: -x, tree)
assert negated == {"x": [-1, (2.0, Pair(-3, "y"))], "none": None}
assert _torch_compat.tree_leaves(tree) == [1, 2.0, 3, "y", None] == module.tree_leaves(tree)
"""


def run_without(module, name, program):
    program = WITHOUT.format(module=module, name=name) + program
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._subclasses.fake_tensor", "FakeTensorMode"),
        ("torch.utils._pytree", "tree_map_only"),
    ],
)
def test_networks_are_converted(module, name):
    run_without(module, name, CONVERT)


def test_where_the_compiler_cannot_be_looked_for_it_counts_as_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert not _torch_compat.compiler_loaded()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert _torch_compat.compiler_loaded()


def test_nested_containers():
    run_without("torch.utils._pytree", "tree_leaves", CONTAINERS)
