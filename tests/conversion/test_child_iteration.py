"""Modules that run over their children, where a new one would be run too."""

import copy

import pytest
import torch
import torch.nn.functional as F
from checking import assert_converted, units
from torch import nn

import torch_srelu as ts

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:no activation of"),
]


class Stack(nn.Sequential):
    def __init__(self, how):
        super().__init__(nn.Linear(4, 4), nn.Linear(4, 4))
        self.how = how

    def forward(self, x):
        if self.how == "for":
            for layer in self:
                x = layer(F.relu(x))
        elif self.how == "len":
            for i in range(len(self)):
                x = self[i](F.relu(x))
        elif self.how == "last":
            x = self[-1](F.relu(self[0](x)))
        elif self.how == "children":
            for layer in self.children():
                x = layer(F.relu(x))
        elif self.how == "super":
            x = super().forward(F.relu(x))
        return x


@pytest.mark.parametrize("how", ["for", "len", "last", "children", "super"])
def test_a_module_that_runs_over_its_children_gets_no_new_ones(how):
    net, x = Stack(how), torch.randn(3, 4)
    original = copy.deepcopy(net)
    ts.convert(net, x)
    assert torch.equal(net(x), original(x))
    assert not units(net)
    assert "children of the module" in str(ts.summary(net))


class ByIndex(nn.Sequential):
    def forward(self, x):
        self.train(self.training)  # by which torch lists the children itself
        return F.relu(self[0](x) + x)


def test_a_module_that_takes_its_children_by_index_is_converted():
    net, before = ByIndex(nn.Linear(4, 4)), (nn.Sequential.__len__, nn.Module.named_children)
    assert_converted(net, torch.randn(3, 4))
    assert before == (nn.Sequential.__len__, nn.Module.named_children)
