"""Fallbacks of torch's private names: each test removes a name."""

import importlib.util
import runpy
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from small_networks import batches, convnet, sgd, units
from torch_srelu import AdaptiveInit, LazySReLU, SReLU, _torch_compat

pytestmark = pytest.mark.usefixtures("one_thread")

# ---- modules ----


@pytest.mark.parametrize(
    ("owner", "name", "table", "layer"),
    [
        (nn.modules.conv, "_ConvNd", "CONVOLUTIONS", nn.ConvTranspose2d(2, 3, 1)),
        (nn.modules.batchnorm, "_NormBase", "NORMS", nn.InstanceNorm1d(3)),
    ],
)
def test_layers_are_known_by_their_public_classes(monkeypatch, owner, name, table, layer):
    assert isinstance(layer, getattr(_torch_compat, table))
    monkeypatch.delattr(owner, name)
    classes = runpy.run_path(_torch_compat.__file__)[table]
    assert isinstance(layer, classes)
    assert not isinstance(nn.Linear(2, 3), classes)


def test_parameters_are_read_as_attributes(monkeypatch):
    assert _torch_compat.own_parameters(object()) == {}  # type: ignore[arg-type]
    unit = SReLU(3)
    monkeypatch.setattr("torch_srelu.module.own_parameters", lambda module: {})
    assert all(a is b for a, b in zip(unit.tensors(), unit.parameters(), strict=True))


def test_lazy_modules_are_initialized_by_a_forward_pass(monkeypatch):
    unit: Any = LazySReLU(dim=-1)
    monkeypatch.delattr(LazyModuleMixin, "_infer_parameters")
    _torch_compat.initialize_lazy(unit, torch.empty(1, 5, device="meta"))
    assert type(unit) is SReLU
    assert unit.num_channels == 5
    assert unit.t_r.device.type == "cpu"


def test_adapt_runs_a_compiled_model_that_cannot_be_unwrapped(monkeypatch):
    plain, inner, data = convnet(), convnet(), batches((9,))
    AdaptiveInit(plain, sgd(plain)).adapt(data)
    compiled: Any = torch.compile(inner, backend="eager")
    compiled.eval()(data[0][0])
    assert _torch_compat.uncompiled(compiled) is inner
    monkeypatch.setattr("torch_srelu._data_parallel.uncompiled", lambda model: model)
    AdaptiveInit(compiled, sgd(inner)).adapt(data)
    for name, unit in units(inner).items():
        assert torch.equal(unit.t_r, units(plain)[name].t_r)


def test_the_compiler_is_switched_off_where_nothing_tells_whether_it_is_loaded(monkeypatch):
    torch.compile(lambda x: x, backend="eager")(torch.ones(1))
    monkeypatch.delitem(sys.modules, "torch._dynamo")
    assert _torch_compat.force_eager().__class__.__name__ == "nullcontext"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.compiler, "set_stance", lambda stance: stance)
    assert _torch_compat.force_eager() == "force_eager"


# ---- data ----


class Pair(NamedTuple):
    left: Any
    right: Any


def test_batches_are_mapped_without_pytrees(monkeypatch):
    tree = {"a": [1, (2, Pair(3, [4]))], "b": 5}
    expected = {"a": [2, (4, Pair(6, [8]))], "b": 10}
    assert _torch_compat.tree_map(lambda leaf: 2 * leaf, tree) == expected
    monkeypatch.setitem(sys.modules, "torch.utils._pytree", None)
    assert _torch_compat.tree_map(lambda leaf: 2 * leaf, tree) == expected


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
