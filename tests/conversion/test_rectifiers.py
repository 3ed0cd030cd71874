"""Every way to call an activation."""

import copy
import functools
import inspect

import pytest
import torch
import torch.nn.functional as F
from checking import assert_converted, units
from torch import nn

import torch_srelu as ts

pytestmark = pytest.mark.usefixtures("one_thread")


class Forms(nn.Module):
    """A linear layer and one call of an activation, written as the test says."""

    def __init__(self, call):
        super().__init__()
        self.linear = nn.Linear(6, 5)
        self.weight = nn.Parameter(torch.rand(5))
        self.act = F.relu
        self.partial = functools.partial(F.leaky_relu, negative_slope=0.3)
        self.unregistered = [nn.Hardtanh(-0.5, 0.4)]
        self.call = call

    def forward(self, x):
        x = self.linear(x)
        if self.call == "F.relu":
            return F.relu(x)
        if self.call == "F.relu inplace":
            return F.relu(x, inplace=True)
        if self.call == "F.relu by keyword":
            return F.relu(inplace=False, input=x)
        if self.call == "F.relu_":
            return F.relu_(x)
        if self.call == "torch.relu":
            return torch.relu(x)
        if self.call == "torch.relu_":
            return torch.relu_(x)
        if self.call == "x.relu":
            return x.relu()
        if self.call == "x.relu_":
            return (
                x
                .relu_()
            )  # fmt: skip
        if self.call == "F.leaky_relu":
            return F.leaky_relu(x, 0.2)
        if self.call == "F.leaky_relu_":
            return F.leaky_relu_(x, negative_slope=0.1)
        if self.call == "F.prelu":
            return F.prelu(x, self.weight)
        if self.call == "x.prelu":
            return x.prelu(self.weight)
        if self.call == "F.relu6":
            return F.relu6(9 * x, True)
        if self.call == "F.hardtanh":
            return F.hardtanh(x, -0.3, max_val=0.2)
        if self.call == "F.hardtanh_":
            return F.hardtanh_(x, min_val=-0.1)
        if self.call == "function in an attribute":
            return self.act(x)
        if self.call == "partial in an attribute":
            return self.partial(x)
        if self.call == "module in a list":
            return self.unregistered[0](x)
        if self.call == "nested":
            return F.relu(self.linear.weight.T[0, :] + F.relu(x).relu())
        if self.call == "comprehension":
            return sum([F.relu(part - self.weight) for part in (x, 2 * x)])
        raise AssertionError(self.call)


CALLS = [
    line.split('"')[1]
    for line in inspect.getsource(Forms.forward).splitlines()
    if "if self.call" in line
]


@pytest.mark.parametrize("call", CALLS)
def test_every_form_of_call(call):
    net = Forms(call)
    assert_converted(net, torch.randn(4, 6))
    assert {unit.num_channels for unit in units(net)} == {5}


MODULES = {
    "ReLU": (nn.ReLU(), {"a_l": 0.0, "t_l": 0.0, "a_r": 1.0, "t_r": 1.0}),
    "ReLU inplace": (nn.ReLU(inplace=True), {"a_l": 0.0, "t_l": 0.0, "a_r": 1.0}),
    "LeakyReLU": (nn.LeakyReLU(0.3, inplace=True), {"a_l": 0.3, "t_l": 0.0, "a_r": 1.0}),
    "PReLU shared": (nn.PReLU(init=0.5), {"a_l": 0.5, "t_l": 0.0, "a_r": 1.0}),
    "PReLU": (nn.PReLU(4, init=-0.25), {"a_l": -0.25, "t_l": 0.0, "a_r": 1.0}),
    "ReLU6": (nn.ReLU6(), {"a_l": 0.0, "t_l": 0.0, "a_r": 0.0, "t_r": 6.0}),
    "Hardtanh": (nn.Hardtanh(-2, 0.7), {"a_l": 0.0, "t_l": -2.0, "a_r": 0.0, "t_r": 0.7}),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", MODULES)
def test_every_module_in_every_precision(kind, dtype):
    module, values = MODULES[kind]
    net = nn.Sequential(nn.Conv2d(3, 4, 3), copy.deepcopy(module), nn.Flatten()).to(dtype)
    x = 8 * torch.randn(2, 3, 8, 8, dtype=dtype)
    with torch.no_grad():
        before = net(x)
        ts.convert(net)
        assert torch.equal(net(x), before)
    (unit,) = units(net)
    assert unit.num_channels == 4
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    for name, p in unit.named_parameters():
        assert p.dtype == expected
        assert p.requires_grad
        if name in values:
            assert torch.equal(p, torch.full((4,), values[name], dtype=expected))


class NamesTheInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.once, self.twice = nn.Linear(4, 4), nn.ReLU(), nn.LeakyReLU()

    def forward(self, x):
        x = self.once(input=self.linear(x))
        return self.twice(input=self.twice(x) - 0.1)


def test_the_input_of_a_module_may_be_given_by_name():
    net = NamesTheInput()
    assert assert_converted(net, torch.randn(3, 4)) == 3
    assert [name for name, m in net.named_modules() if m in units(net)] == [
        "once", "twice", "twice_2",
    ]  # fmt: skip


def test_prelu_keeps_its_learned_slopes():
    net = nn.Sequential(nn.Conv1d(2, 3, 1), nn.PReLU(3))
    slopes = torch.tensor([0.1, -0.5, 2.0])
    with torch.no_grad():
        nn.utils.vector_to_parameters(slopes, net[1].parameters())
    assert_converted(net, torch.randn(2, 2, 9))
    assert torch.equal(units(net)[0].a_l, slopes)


def test_special_inputs_go_through_as_before():
    net = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Hardtanh())
    x = torch.tensor([[float("inf"), -float("inf"), float("nan"), -0.0, 0.0, 1.0, -1.0]])
    before = net(x)
    assert torch.equal(ts.convert(net, x)(x).nan_to_num(7), before.nan_to_num(7))


@pytest.mark.parametrize("bounds", [(0.0, torch.inf), (-torch.inf, 2.0), (-torch.inf, torch.inf)])
def test_a_hardtanh_without_a_bound_has_no_threshold_there(bounds):
    x = torch.tensor([[-torch.inf, -3.0, 0.5, 7.0, torch.inf]])
    expected = F.hardtanh(x, *bounds)
    net = ts.convert(nn.Sequential(nn.Hardtanh(*bounds)), x)
    assert torch.equal(net(x), expected)
    assert all(p.isfinite().all() for p in net.parameters())
