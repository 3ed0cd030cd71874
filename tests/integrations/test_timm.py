"""act_layer="srelu" in timm."""

import copy
import gc
import importlib
import sys

import pytest
import torch
from torch import nn

import torch_srelu as ts

timm = pytest.importorskip("timm")

from torch_srelu.integrations.timm import SReLULayer  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


# A deep stem in a list, channels last, an inverted bottleneck with units inside its norms.
FAMILIES = {
    "resnet26d": ("srelu", {1}),
    "vit_tiny_patch16_224": ("srelu", {-1}),
    "mobilenetv3_small_050": (SReLULayer, {1}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_units_have_their_size_when_the_network_is_built(name):
    layer, dims = FAMILIES[name]
    options = {"img_size": 32} if "vit" in name else {}
    net = timm.create_model(name, act_layer=layer, num_classes=10, **options)
    units = [m for m in net.modules() if isinstance(m, ts.SReLU)]
    assert units
    assert all(type(unit) is ts.SReLU and type(unit.t_r) is nn.Parameter for unit in units)
    assert {unit.dim for unit in units} == dims
    twin = copy.deepcopy(net)
    twin.load_state_dict(net.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(twin.eval()(x), net.eval()(x))
    net.train()(x).sum().backward()
    assert all(p.grad is not None for unit in units for p in unit.parameters())


class Around(nn.Module):
    """Builds a block, as networks do."""

    def __init__(self, block):
        super().__init__()
        self.block = block()

    def forward(self, x):
        return self.block(x)


class Block(nn.Module):
    """Builds its activation after the layer that comes behind it."""

    def __init__(self, halved):
        super().__init__()
        self.fc1 = nn.Linear(8, 12)
        self.fc2 = nn.Linear(6 if halved else 12, 8)
        self.act = SReLULayer()
        self.halved = halved

    def forward(self, x):
        x = self.fc1(x)
        return self.fc2(self.act(x.chunk(2, -1)[0] if self.halved else x))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.off = nn.Identity()
        self.act = SReLULayer(inplace=True)

    def forward(self, x, y):
        return self.act(self.off(self.conv(x))) + y


@pytest.mark.parametrize("halved", [False, True])
def test_the_run_decides_not_the_order_of_building(halved):
    net = nn.Sequential(Block(halved))
    assert repr(net[0].act) == f"SReLU({6 if halved else 12}, dim=-1)"


def test_a_module_that_cannot_be_run_alone_goes_by_the_layer_before():
    assert repr(nn.ModuleList([TwoInputs()])[0].act) == "SReLU(8, dim=1)"
    assert repr(TwoInputs().act) == "SReLU(8, dim=1)"  # the network itself: nobody takes it in


class MixedHeads(nn.Module):
    """Attention with a convolution over its heads, as in EfficientFormerV2.

    It takes images of one size alone, and that is no usual one.
    """

    def __init__(self):
        super().__init__()
        self.values = nn.Sequential(nn.Conv2d(3, 8, 1))
        self.bias = nn.Parameter(torch.zeros(49))
        self.mix = nn.Conv2d(2, 2, 1)
        self.act = SReLULayer()
        self.out = nn.Sequential(nn.Conv2d(8, 3, 1))

    def forward(self, x):
        values = (self.values(x).flatten(2) + self.bias).unflatten(1, (2, 4))  # (N, heads, 4, 49)
        scores = self.mix(values.mT @ values)
        return self.out(self.act((values @ scores).flatten(1, 2).unflatten(2, (7, 7))))


def test_a_layer_before_that_does_not_fit_the_layer_behind_feeds_something_else():
    net = Around(MixedHeads)
    assert isinstance(net.block.act, ts.LazySReLU)
    net(torch.randn(2, 3, 7, 7))
    assert repr(net.block.act) == "SReLU(8, dim=1)"


class CalledTwice(nn.Module):
    """One activation behind layers of different sizes, as in a Res2Net."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.act = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 1), SReLULayer()

    def forward(self, x):
        return self.act(self.second(self.act(self.first(x))))


def test_a_unit_that_is_called_on_several_sizes_is_shared():
    net = Around(CalledTwice)
    assert net.block.act.num_channels == 1
    assert net(torch.randn(2, 3, 4, 4)).shape == (2, 16, 4, 4)


def test_without_a_known_layer_before_it_the_unit_stays_lazy():
    net = nn.Sequential(SReLULayer(), nn.Flatten())
    assert isinstance(net[0], ts.LazySReLU)
    net(torch.randn(2, 5, 3))
    assert repr(net[0]) == "SReLU(5, dim=1)"


def test_a_timm_without_a_table_of_activations_is_warned_of(monkeypatch):
    monkeypatch.delattr(timm.layers.create_act, "_ACT_LAYER_DEFAULT")
    monkeypatch.delitem(sys.modules, "torch_srelu.integrations.timm")
    with pytest.warns(UserWarning, match="pass the class"):
        importlib.import_module("torch_srelu.integrations.timm")


def test_no_hook_is_left_without_uninitialized_units():
    hooks = torch.nn.modules.module._global_module_registration_hooks
    before = len(hooks)
    waiting = SReLULayer()
    assert len(hooks) == max(before, 1)
    del waiting
    gc.collect()
    nn.Sequential(nn.Linear(2, 2))
    assert not hooks
