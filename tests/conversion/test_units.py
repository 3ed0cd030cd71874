"""What the units are: in place or not, their parameters and hooks."""

import copy
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from checking import assert_converted, assert_same, units
from torch import nn
from torch.utils._pytree import tree_leaves

import torch_srelu as ts
from torch_srelu.conversion.units import InPlaceSReLU

pytestmark = pytest.mark.usefixtures("one_thread")


class ReadsInputAgain(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.inner = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4))
        self.how = how

    def forward(self, x):
        x = self.linear(x)
        if self.how == "statement":
            F.relu(x, inplace=True)
            return x
        if self.how == "sum":
            return F.relu_(x) + x
        if self.how == "alias":
            kept = x
            x = x.relu_()
            return x * 2 + kept
        if self.how == "view":
            x[:, :2].relu_()
            return x
        if self.how == "in a child":  # the pre-activation residual block
            return self.inner(x) + x
        raise AssertionError(self.how)


@pytest.mark.parametrize("how", ["statement", "sum", "alias", "view", "in a child"])
def test_later_reads_of_an_in_place_input_see_the_result(how):
    net = ReadsInputAgain(how)
    ts_net = copy.deepcopy(net)
    if how != "in a child":
        del net.inner, ts_net.inner
    assert_converted(ts_net, torch.randn(3, 4))
    assert all(isinstance(unit, InPlaceSReLU) for unit in units(ts_net))


@dataclass
class Outputs:
    before: torch.Tensor
    after: torch.Tensor


class GivesItsInputAway(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.linear, self.how = nn.Linear(4, 4), how

    def forward(self, x):
        x = self.linear(x)
        outputs = Outputs(x, F.relu(x, inplace=True))
        return outputs if self.how == "object" else [outputs]


@pytest.mark.parametrize("how", ["object", "objects in a list"])
def test_an_in_place_input_in_an_object_that_is_returned_is_overwritten(how):
    net, x = GivesItsInputAway(how), torch.randn(3, 4)
    ts.convert(net, x)
    (outputs,) = tree_leaves(net(x))
    assert torch.equal(outputs.before, net.linear(x).relu())
    assert torch.equal(outputs.after, outputs.before)


class KeepsItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.kept = nn.Linear(4, 4), {}

    def forward(self, x):
        self.kept["features"] = x = self.linear(x)
        return F.relu(x, inplace=True)


def test_an_in_place_input_that_the_network_keeps_is_overwritten():
    net, x = KeepsItsInput(), torch.randn(3, 4)
    ts.convert(net, x)
    assert not net.kept
    assert torch.equal(net(x), net.kept["features"])


class PreActivation(nn.Module):
    """A block that overwrites what it is given."""

    def __init__(self, how):
        super().__init__()
        self.relu, self.linear = nn.ReLU(inplace=True), nn.Linear(4, 4)
        self.how = how

    def forward(self, x):
        if self.how == "tensor":
            return self.linear(self.relu(x))
        if self.how == "view":
            return self.linear(self.relu(x[:2]))
        if self.how == "taken out":
            return self.linear(self.relu(x.pop()))
        if self.how == "put in":
            x.append(self.linear(x[0]))
            return self.linear(self.relu(x[1]))
        raise AssertionError(self.how)


@pytest.mark.parametrize("how", ["tensor", "view", "taken out", "put in"])
def test_the_caller_of_a_converted_part_sees_what_it_wrote_into_its_input(how):
    def run(block):
        x = torch.linspace(-1, 1, 12).reshape(3, 4)
        given = x.clone() if how in ("tensor", "view") else [x.clone()]
        held = given if how in ("tensor", "view") else given[0]
        y = block(given)
        return [y, held, *given]

    block = PreActivation(how)
    expected = run(block)
    example = torch.ones(3, 4)
    ts.convert(block, example if how in ("tensor", "view") else ([example],))
    assert len(units(block)) == 1
    assert_same(expected, run(block))


def test_data_that_a_network_overwrites_can_be_trained_on_again():
    net = ts.convert(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)), torch.randn(2, 4))
    x = torch.randn(2, 4)
    for _ in range(2):
        net(x).sum().backward()
    assert not x.requires_grad
    assert net[0].a_l.grad.abs().sum() > 0


def test_an_overwritten_input_that_the_network_reads_gives_the_unit_gradients():
    class Ignoring(nn.Module):
        """Calls an in-place activation for what it does to its input alone."""

        def __init__(self):
            super().__init__()
            self.relu, self.linear = nn.ReLU(inplace=True), nn.Linear(4, 4)

        def forward(self, x):
            self.relu(x)
            return self.linear(x)

    net = ts.convert(Ignoring(), torch.randn(2, 4))
    net(torch.randn(8, 4)).sum().backward()
    assert net.relu.a_l.grad.abs().sum() > 0


class Constrained(nn.Module):
    """Keeps its own weights positive."""

    def __init__(self, how):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4))
        self.register_buffer("shift", torch.linspace(-1, 1, 3))
        self.how = how

    def forward(self, x):
        if self.how == "data":
            self.weight.data.relu_()
        elif self.how == "detach":
            F.relu(self.weight.detach(), inplace=True)
        elif self.how == "part":
            F.relu_(self.weight.data[1:])
        elif self.how == "buffer":
            F.relu_(self.shift)
        return F.leaky_relu(F.linear(x, self.weight, self.shift))


@pytest.mark.parametrize("how", ["data", "detach", "part", "buffer"])
def test_a_constraint_on_weights_is_no_activation(how):
    net, x = Constrained(how), torch.randn(2, 4)
    original = copy.deepcopy(net)
    ts.convert(net, x)
    assert [name for name, m in net.named_modules() if m in units(net)] == ["leaky_relu"]
    assert "a constraint, not an activation" in str(ts.summary(net))
    assert torch.equal(net(x), original(x))
    assert torch.equal(net.weight, original.weight)
    assert torch.equal(net.shift, original.shift)


def test_in_place_is_dropped_where_nothing_reads_the_input_again():
    net = ts.convert(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)))
    assert type(net[1]) is ts.SReLU


def test_parameters_are_trainable_whatever_surrounds_the_call():
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            net = ts.convert(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        net(torch.randn(2, 4)).sum().backward()
        assert all(p.grad is not None for p in units(net)[0].parameters())


def test_parameters_are_on_the_device_of_the_layer():
    with torch.device("meta"):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert all(p.is_meta for p in units(ts.convert(net))[0].parameters())


def test_backward_hooks_move_to_the_unit():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    seen = []
    net[1].register_full_backward_hook(lambda module, into, out: seen.append(module))
    ts.convert(net)
    net(torch.randn(2, 4)).sum().backward()
    assert seen == [net[1]]
