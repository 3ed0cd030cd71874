"""Fallbacks for private names used by modules, loaders and conversion: each test removes one."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torch_srelu import _torch_compat

pytestmark = pytest.mark.usefixtures("one_thread")

# ---- modules ----


def test_persistent_workers_go_on_where_they_cannot_be_set_aside():
    loader: Any = SimpleNamespace(persistent_workers=True)
    with _torch_compat.fresh_workers(loader):
        assert vars(loader) == {"persistent_workers": True}


# ---- autograd ----


def test_no_backward_pass_is_noticed_without_a_way_to_know(monkeypatch):
    seen = []
    for _ in range(2):
        x = torch.ones(1, requires_grad=True)
        y = 2 * x
        y.register_hook(lambda grad: seen.append(_torch_compat.in_backward()))
        y.sum().backward()
        monkeypatch.delattr(torch._C, "_current_graph_task_id", raising=False)
    assert seen == [True, False]


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

from torch_srelu.integrations.channel_inference import UnsizedSReLU
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


def test_nested_containers():
    run_without("torch.utils._pytree", "tree_leaves", CONTAINERS)


def test_modules_without_dicts_of_hooks_have_none() -> None:
    hooked = nn.Linear(2, 3)
    hooked.register_forward_hook(lambda *_: None)
    assert _torch_compat.has_forward_hooks(hooked)
    assert not _torch_compat.has_forward_hooks(nn.Linear(2, 3))
    assert not _torch_compat.has_forward_hooks(object())  # type: ignore[arg-type]
