"""One unit for each place, and what is left."""

import copy
import functools
import itertools
import pickle
import random

import pytest
import torch
import torch.nn.functional as F
from checking import Loop, Reused, assert_converted, sizes, units
from torch import nn

import torch_srelu as ts

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:no activation of"),
]


def test_a_module_called_in_three_places_becomes_three_units():
    net = Reused()
    assert assert_converted(net, torch.randn(3, 4)) == 3
    assert sizes(net, "relu", "relu_2", "relu_3") == [(6, -1), (8, -1), (4, -1)]


def test_one_object_in_several_slots_becomes_several_units():
    act = nn.ReLU()
    net = nn.Sequential(nn.Linear(4, 6), act, nn.Linear(6, 6), act)
    assert_converted(net, torch.randn(3, 4))
    assert net[1] is not net[3]
    assert len(units(net)) == 2


def test_a_shared_submodule_shares_its_unit():
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net = nn.Sequential(block, nn.LayerNorm(4), block)
    assert assert_converted(net, torch.randn(3, 4)) == 2
    assert net[0] is net[2]
    assert len(units(net)) == 1


def test_each_iteration_of_a_loop_over_layers_gets_its_unit():
    net = Loop()
    assert_converted(net, torch.randn(3, 4))
    assert sizes(net, "act.0", "act.1") == [(6, -1), (8, -1)]
    assert sizes(net, "leaky_relu.0", "leaky_relu.1") == [(6, -1), (8, -1)]
    equal_widths = ts.convert(Loop((4, 4, 4, 4)))
    assert len(units(equal_widths)) == 6


class Residual(nn.Module):
    """A loop whose activation sees a sum, or all that came before."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        widths = (4, 8, 12) if how == "dense" else (4, 4, 4)
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList(nn.Linear(width, 4) for width in widths)

    def forward(self, x):
        x = self.first(x)
        seen = [x]
        for layer in self.layers:
            if self.how == "before":
                x = F.relu(x + layer(x))
            elif self.how == "behind":
                x = F.relu(layer(x) + x)
            else:
                x = layer(F.relu(torch.cat(seen, -1)))
                seen.append(x)
        return x


@pytest.mark.parametrize("how", ["before", "behind", "dense"])
def test_iterations_of_residual_and_dense_loops_get_their_units(how):
    net = Residual(how)
    assert_converted(net, torch.randn(3, 4), example=torch.randn(3, 4))
    expected = [(4, -1), (8, -1), (12, -1)] if how == "dense" else [(4, -1)] * 3
    assert sizes(net, "relu.0", "relu.1", "relu.2") == expected


def test_a_loop_that_runs_longer_than_it_did_says_so():
    net = ts.convert(Loop((4, 4, 4)))
    net.layers.append(nn.Linear(4, 4))
    with pytest.raises(RuntimeError, match="had 2 iterations"):
        net(torch.randn(3, 4))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, x):
        h = torch.zeros_like(x[0])
        for row in x:
            h = F.relu(self.step(h) + row)
        return h


def test_a_recurrent_loop_shares_its_unit_as_it_shares_its_weights():
    net = ts.convert(Recurrent(), torch.randn(3, 2, 4))
    assert len(units(net)) == 1
    assert net(torch.randn(7, 2, 4)).shape == (2, 4)  # any number of iterations


class Skipping(nn.Module):
    """Leaves out layers: at random while it trains, or at the end."""

    def __init__(self, how, widths=(4, 4, 4, 4, 4)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in itertools.pairwise(widths))
        self.how = how

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if self.how == "random" and self.training and random.random() < 0.3:
                continue
            if self.how == "torch" and self.training and torch.rand(()) < 0.3:
                continue
            if self.how == "early" and not self.training and i == 3:
                break
            x = F.relu(layer(x))
        return x


@pytest.mark.parametrize("how", ["random", "torch", "early"])
def test_a_loop_that_leaves_out_layers_shares_its_unit(how):
    for seed in range(3):  # of the program around: the result is the same
        random.seed(seed)
        torch.manual_seed(seed)
        net = ts.convert(Skipping(how), torch.randn(3, 4))
        assert sizes(net, "relu") == [(4, -1)]
    assert len(units(ts.convert(Skipping("never"), torch.randn(3, 4)))) == 4


def test_a_loop_that_leaves_out_layers_of_several_widths_is_left():
    net = ts.convert(Skipping("early", (4, 6, 8, 6, 8)), torch.randn(3, 4))
    assert not units(net)
    assert "called with 6 and 8 channels" in ts.summary(net).left[0].why


# ---- modules that run over their children, where a unit would be run too ----


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


class RunsItsChildren(nn.Module):
    """No container of torch's, so only the source code of a helper tells."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def run(self, x):
        for layer in self.children():
            x = layer(x)
        return x

    def forward(self, x):
        return self.run(F.relu(x))


@pytest.mark.parametrize(
    "build",
    [
        *(functools.partial(Stack, how) for how in ("for", "len", "last", "children", "super")),
        RunsItsChildren,
    ],
)
def test_a_module_that_runs_over_its_children_gets_no_new_ones(build):
    net, x = build(), torch.randn(3, 4)
    original = copy.deepcopy(net)
    ts.convert(net, x)
    assert torch.equal(net(x), original(x))
    assert not units(net)
    assert "children of the module" in str(ts.summary(net))


class ListsItsChildren(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.first = next(iter(self.children()))

    def freeze(self):
        for child in self.children():
            child.requires_grad_(False)

    def forward(self, x):
        self.train(self.training)  # in which torch itself runs over the children
        return F.relu(self.linear(x))


def test_a_module_may_list_its_children_outside_of_its_forward_pass():
    assert_converted(ListsItsChildren(), torch.randn(3, 4))


# ---- what is left, and why ----


def elsewhere(x):
    return F.relu(x)


class Awkward(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.linear, self.wide, self.square = nn.Linear(4, 4), nn.Linear(4, 6), nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.acts = nn.ModuleList([nn.ReLU()])
        self.what = what
        self.made_before = lambda x: F.relu(x)
        self.held = functools.partial(self.wrapped_method)

    def wrapped_method(self, x):
        return F.relu(x)

    def helper(self, x):
        return F.relu(x)

    def forward(self, x):
        x = F.leaky_relu(self.linear(x))  # could be converted, but never without the rest
        if self.what == "as a keyword":
            return self.acts[0](input=x)
        if self.what == "made before":
            return self.made_before(x)
        if self.what == "wraps its wrapped_method()":
            return self.held(x)
        if self.what == "not a method":
            return elsewhere(x)
        if self.what == "channels":
            return self.helper(self.wide(x)).sum() + self.helper(x)
        if self.what == "dimensions":
            return self.helper(x.mT).mT + self.helper(x)
        if self.what == "indirectly":
            return sum(map(F.relu, (x, x))) + torch.Tensor.relu(x)
        if self.what == "computed":
            return F.prelu(x, self.linear(x).mean().reshape(1))
        if self.what == "parameters":
            return sum(F.leaky_relu(x, slope) for slope in (0.1, 0.2))
        if self.what == "variable":
            for function in (F.relu, F.gelu):
                x = function(x)
            return x
        if self.what == "another function":  # a place that calls layers as well as the activation
            for layer in (self.linear, self.square):
                for step in (layer, self.act):
                    x = step(x)
            return x
        if self.what == "int64":
            return F.relu(x.long()) + x
        if self.what == "sparse":
            return torch.relu(x.to_sparse()).to_dense()
        if self.what == "nested":
            return F.relu(torch.nested.nested_tensor([x, x], layout=torch.jagged)).values()
        if self.what == "its input is torch.int16":
            return F.relu(x.short()) + F.relu(x)  # on one line with one that could be converted
        raise AssertionError(self.what)


@pytest.mark.parametrize(
    "what",
    [
        "as a keyword",
        "made before",
        "wraps its wrapped_method()",
        "not a method",
        "channels",
        "dimensions",
        "indirectly",
        "computed",
        "parameters",
        "variable",
        "another function",
        "int64",
        "sparse",
        "nested",
        "its input is torch.int16",
    ],
)
def test_what_cannot_be_rewritten_is_left_whole_and_listed(what):
    net, x = Awkward(what), torch.randn(3, 4)
    before, cls = net(x), type(net)
    ts.convert(net, x)
    assert torch.equal(net(x), before)
    left = ts.summary(net).left
    assert any(what in line.why for line in left)
    if what != "not a method":  # there the module itself could be converted whole
        assert type(net) is cls
        assert not units(net)
        assert any("LeakyReLU" in line.activation for line in left)


def test_an_activation_that_is_never_called_is_left_and_listed():
    net = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.ReLU()})
    net.forward = lambda x: net["used"](x).relu_()  # type: ignore[method-assign]
    ts.convert(net, torch.randn(2, 4))
    assert type(net["unused"]) is nn.ReLU
    assert any("did not call" in line.why for line in ts.summary(net).left)


def test_a_graph_of_torch_fx_is_left_where_it_calls_functions():
    traced = torch.fx.symbolic_trace(Reused())
    ts.convert(traced)
    assert not units(traced)
    assert any("pickling" in line.why for line in ts.summary(traced).left)


def test_training_mode_that_cannot_run_is_listed():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    ts.convert(net, torch.randn(1, 4))
    assert len(units(net)) == 1
    (line,) = ts.summary(net).left
    assert "more than 1 value" in line.why


# ---- choosing ----


def test_only_and_skip():
    def build():
        return nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4), nn.ReLU())

    paths = lambda net: [path for path, m in net.named_modules() if isinstance(m, ts.SReLU)]  # noqa: E731
    assert paths(ts.convert(build(), only="0")) == ["0.1"]
    assert paths(ts.convert(build(), only=["2"])) == ["2"]
    assert paths(ts.convert(build(), only="*", skip="0.*")) == ["2"]
    net = ts.convert(build(), skip="0")
    assert [(line.where, line.why) for line in ts.summary(net).left] == [("0.1", "not asked for")]
    assert paths(ts.convert(net)) == ["0.1", "2"]  # the rest, later
    assert not ts.summary(net).left
    assert ts.convert(net) is net  # nothing more to do


def test_a_second_conversion_rewrites_what_the_first_rewrote():
    net = ts.convert(Loop(), only="act")
    assert len(units(net)) == 2
    assert_converted(net, torch.randn(3, 4))
    assert len(units(net)) == 4
    assert sizes(net, "leaky_relu.0", "leaky_relu.1") == [(6, -1), (8, -1)]  # behind an SReLU
    assert torch.equal(pickle.loads(pickle.dumps(net))(torch.ones(1, 4)), net(torch.ones(1, 4)))


def test_a_network_of_which_nothing_could_be_converted_says_so():
    class Indirect(nn.Module):
        def forward(self, x):
            function = F.relu
            return function(x)

    with pytest.warns(UserWarning, match="no activation of Indirect could be converted"):
        ts.convert(Indirect(), torch.randn(3, 4))
