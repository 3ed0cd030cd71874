"""Activations that no run has come to are listed."""

import functools

import pytest
import torch
import torch.nn.functional as F
from checking import Reused, units
from torch import nn
from torch.nn.functional import leaky_relu

import torch_srelu as ts

pytestmark = pytest.mark.usefixtures("one_thread")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = F.relu
        self.clip = functools.partial(F.hardtanh, min_val=-2.0)
        self.inner = Reused()

    def forward(self, x, how=None):
        x = self.linear(x)
        if how == "functions":
            return F.relu6(x) + leaky_relu(x)
        if how == "attributes":
            return self.act(x) + self.clip(x)
        if how == "methods":
            return self.linear(x).relu_()
        if how == "others":  # nothing of ours, and what would be replaced all the same
            return F.gelu(x) + self.inner.relu(x) + x.tanh()
        return self.inner(F.relu(x))


def test_calls_in_branches_that_the_example_did_not_take_are_listed():
    net = ts.convert(nn.Sequential(Block()), torch.randn(3, 4))
    assert len(units(net)) == 4
    left = ts.summary(net).left
    assert {line.where for line in left} == {"0"}
    assert {line.why for line in left} == {"the example did not reach it"}
    names = [line.activation.split()[0] for line in left]
    assert sorted(names) == ["Hardtanh", "LeakyReLU", "ReLU", "ReLU", "ReLU6"]
    assert all("Block.forward, test_unreached_calls.py:" in line.activation for line in left)
    # what is reached later can be converted later
    ts.convert(net[0], (torch.randn(3, 4), "functions"))
    left = ts.summary(net).left
    assert sorted(line.activation.split()[0] for line in left) == ["Hardtanh", "ReLU", "ReLU"]


class Decorated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.autocast("cpu", enabled=False)
    def forward(self, x, sharp=False):
        x = F.relu(self.linear(x))
        if sharp:
            x = F.relu6(x)
        return F.leaky_relu(x)


def test_what_a_decorated_method_has_called_is_not_said_to_be_out_of_reach():
    net = Decorated()
    with pytest.warns(UserWarning, match="no activation"):
        ts.convert(net, torch.randn(2, 4))
    left = {line.activation.split()[0]: line for line in ts.summary(net).left}
    assert "decorated" in left["ReLU"].why
    assert "decorated" in left["LeakyReLU"].why
    assert "did not reach" in left["ReLU6"].why
    assert "test_unreached_calls.py:" in left["ReLU6"].activation
    assert len(ts.summary(net).left) == 3


class Never(nn.Module):
    def forward(self, x, rectify=False):
        return F.relu(x) if rectify else x


def test_a_network_whose_only_activation_was_not_reached_says_so():
    with pytest.warns(UserWarning, match="no activation of Never could be converted"):
        ts.convert(Never(), torch.randn(3, 4))
