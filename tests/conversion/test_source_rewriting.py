"""Rewritten methods."""

import copy
import importlib
import inspect
import os
import pickle
import subprocess
import sys
from abc import ABCMeta

import pytest
import torch
import torch.nn.functional as F
from checking import Loop, Reused, assert_converted, assert_same, units
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import torch_srelu as ts

pytestmark = pytest.mark.usefixtures("one_thread")


def scale(value):
    """A decorator that leaves a mark on the function, as torch.jit.export does."""

    def mark(function):
        function.scale = value
        return function

    return mark


def closed_over(factor):
    class Closure(Reused):
        """Uses what a rewritten method must keep."""

        def __init__(self):
            super().__init__()
            self.__private = nn.Linear(4, 4)

        @scale(3)
        def forward(self, x, shift=0.5, *, times=2):
            x = super().forward(x)
            return factor * times * F.relu(self.__private(x) - shift)

    return Closure


def test_rewritten_methods_keep_closure_super_private_names_and_defaults():
    net = closed_over(10.0)()
    x = torch.randn(3, 4)
    before = net(x), net(x, 0.1, times=3)
    ts.convert(net, skip="relu")  # what super().forward() calls cannot be rewritten
    assert_same(before, (net(x), net(x, 0.1, times=3)))
    assert vars(type(net).forward)["scale"] == 3
    assert len(units(net)) == 1
    assert "self.relu_2(" in inspect.getsource(type(net).forward)


class TwoNames(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def run(self, x):
        return F.relu(self.linear(x))

    forward = run


class HoldsItsMethod(TwoNames):
    def __init__(self):
        super().__init__()
        self.forward = self.run


@pytest.mark.parametrize("build", [TwoNames, HoldsItsMethod])
def test_a_method_with_two_names_is_rewritten_under_both(build):
    net, x = build(), torch.randn(3, 4)
    assert_converted(net, x)
    for changed in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        nn.init.constant_(changed.relu.a_l, 1.0)  # the identity
        assert torch.equal(changed(x), changed.linear(x))
        assert torch.equal(changed.run(x), changed.linear(x))


class ConvertsItself(TwoNames):
    def __init__(self, example):
        super().__init__()
        ts.convert(self, example)


def test_the_class_of_a_converted_network_builds_one_that_is_not():
    net, x = ts.convert(TwoNames()), torch.randn(3, 4)
    another = type(net)()
    assert type(another) is TwoNames
    assert_converted(another, x)
    another.load_state_dict(net.state_dict())
    assert torch.equal(another(x), net(x))
    assert inspect.signature(type(net)) == inspect.signature(TwoNames)
    itself = ConvertsItself(x)
    assert len(units(type(itself)(example=x))) == 1


class AnswersToEveryName(TwoNames):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return None


def test_a_module_that_answers_to_every_name_is_converted():
    net = AnswersToEveryName()
    assert_converted(net, torch.randn(3, 4))
    assert isinstance(net.relu, ts.SReLU)


class Named(Reused):
    """Names its own class, in the ways that there are."""

    @staticmethod
    def helper(x):
        return x - 0.1

    def forward(self, x):
        x = super(Named, self).forward(x)  # noqa: UP008
        return F.relu(Named.helper(x)) if isinstance(self, Named) else x


def test_a_rewritten_method_may_name_its_own_class():
    net, x = Named(), torch.randn(3, 4)
    before = net(x)
    ts.convert(net, skip="relu")
    assert len(units(net)) == 1
    assert torch.equal(net(x), before)
    assert torch.equal(pickle.loads(pickle.dumps(net))(x), before)


def made_of_a_function(factor):
    def forward(self, x):
        return factor * F.relu(self.__linear(x))

    def __init__(self):
        nn.Module.__init__(self)
        self.__linear = nn.Linear(4, 4)

    return type("Made", (nn.Module,), {"__init__": __init__, "forward": forward})


def test_a_method_may_be_written_outside_a_class():
    net, x = made_of_a_function(10.0)(), torch.randn(3, 4)
    before = net(x)
    ts.convert(net)
    assert len(units(net)) == 1
    assert torch.equal(net(x), before)


def test_copies_pickles_and_state_dicts_are_converted_too(tmp_path):
    net, x = ts.convert(Loop()), torch.randn(3, 4)
    with torch.no_grad():
        for unit in units(net):
            unit.a_l.uniform_()
    torch.save(net, tmp_path / "net.pt")
    fresh = ts.convert(Loop())
    fresh.load_state_dict(net.state_dict())
    loaded = torch.load(tmp_path / "net.pt", weights_only=False)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), loaded, fresh):
        assert torch.equal(other(x), net(x))
        assert type(other) is type(net)
        assert isinstance(other, Loop)
        before = other(x)
        with torch.no_grad():
            units(net)[0].a_l.add_(1)
            assert not torch.equal(net(x), before)
            assert torch.equal(other(x), before)  # its units are its own
            units(net)[0].a_l.sub_(1)
            units(net)[0].a_l.copy_(units(other)[0].a_l)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x)
        kept = x
        return F.relu(F.leaky_relu(x.relu_()) - 0.5) + kept


@pytest.mark.parametrize("build", [Loop, Reused, Nested])
def test_compiles_as_one_graph(build):
    net, x = ts.convert(build()), torch.randn(3, 4)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), net(x))


class OwnReLU(nn.ReLU):
    """Not one of torch's: it may do more."""


def test_a_subclass_of_an_activation_keeps_its_class():
    net = nn.Sequential(nn.Linear(4, 4), OwnReLU(), nn.Linear(4, 4), OwnReLU(inplace=True))
    assert_converted(net, torch.randn(3, 4))
    assert isinstance(net[1], OwnReLU)
    assert len(units(net)) == 2


class Rectified(nn.Linear):
    """A layer whose own method is rewritten, and whose weight can be parametrized."""

    def forward(self, x, deep=False):
        y = F.relu(super().forward(x))
        return F.relu(y - 0.1) if deep else y


REGISTRY = {}


class Registers(ABCMeta):
    def __init__(cls, name, bases, namespace, **keywords):
        super().__init__(name, bases, namespace)
        REGISTRY["metaclass", name] = cls


class Registered(Rectified, metaclass=Registers):
    def __init_subclass__(cls, key):
        super().__init_subclass__()
        REGISTRY["subclass", key] = cls


class Entry(Registered, key="entry"):
    pass


def test_a_rewritten_class_enters_no_registry():
    net, x, before = Entry(4, 5), torch.randn(3, 4), dict(REGISTRY)
    y = net(x)
    ts.convert(net, x)
    assert len(units(net)) == 1
    assert torch.equal(net(x), y)
    assert before == REGISTRY
    assert isinstance(net, Entry)
    assert not isinstance(Entry(4, 5), type(net))
    assert type(net).__bases__ == (Entry,)


class Deep(nn.Sequential):
    def forward(self, x):
        return self[0](x, True)


def parametrized():
    net = Deep(Rectified(4, 5))
    for name in ("weight", "bias"):
        parametrize.register_parametrization(net[0], name, nn.Tanh())
    return net


def test_a_parametrized_module_can_be_freed_of_its_parametrizations():
    net, x = parametrized(), torch.randn(3, 4)
    copied, before, names = copy.deepcopy(net), net(x), set(net.state_dict())
    ts.convert(net, x)
    assert len(units(net)) == 2
    assert torch.equal(net(x), before)
    assert torch.equal(copied(x), before)
    assert names < set(net.state_dict())
    assert parametrize.type_before_parametrizations(net[0]).__name__ == "Rectified"
    converted = copy.deepcopy(net)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(net)
    for name in ("weight", "bias"):
        parametrize.remove_parametrizations(net[0], name)
    assert torch.equal(net(x), before)
    assert torch.equal(copied(x), before)  # it has a class of its own
    assert not parametrize.is_parametrized(net[0])
    assert isinstance(net[0], Rectified)
    assert set(Rectified(4, 5).state_dict()) < set(net[0].state_dict())
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(x), before)
        assert type(other[0]) is type(net[0])
    fresh = ts.convert(parametrized(), x)
    fresh.load_state_dict(converted.state_dict())
    assert torch.equal(fresh(x), before)


def test_a_module_that_is_parametrized_between_two_conversions_stays_so():
    net, x = Deep(Rectified(4, 5)), torch.randn(3, 4)
    ts.convert(net[0], x)
    assert len(units(net)) == 1
    parametrizations.weight_norm(net[0])
    copied, before = copy.deepcopy(net), net(x)
    ts.convert(net, x)
    assert len(units(net)) == 2
    assert parametrize.is_parametrized(net[0], "weight")
    assert torch.equal(net(x), before)
    assert torch.equal(copied(x), before)
    assert torch.equal(copy.deepcopy(net)(x), before)
    parametrize.remove_parametrizations(net[0], "weight")
    assert torch.equal(net(x), before)
    assert torch.equal(copied(x), before)


def test_a_pickle_that_names_torch_srelu_convert_is_refused():
    net = ts.convert(Loop())
    new = pickle.dumps(net, protocol=2)  # with the names of modules as plain text
    assert isinstance(pickle.loads(new), Loop)
    old = new.replace(b"torch_srelu.conversion.source_rewriting", b"torch_srelu.convert.rewrite")
    assert old != new
    with pytest.raises(ModuleNotFoundError, match=r"torch_srelu\.convert"):
        pickle.loads(old)


PROGRAM = """
import sys, torch, nets
net = torch.load(sys.argv[1], weights_only=False)
torch.save((net(torch.ones(1, 4)), net.state_dict()), sys.argv[2])
"""


def test_a_pickle_is_read_by_another_process(tmp_path, monkeypatch):
    source = (
        "import itertools\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
    )
    (tmp_path / "nets.py").write_text(source + inspect.getsource(Loop))
    monkeypatch.syspath_prepend(tmp_path)
    net = ts.convert(importlib.import_module("nets").Loop())
    torch.save(net, tmp_path / "net.pt")
    arguments = [sys.executable, "-c", PROGRAM, tmp_path / "net.pt", tmp_path / "out.pt"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    subprocess.run(arguments, check=True, env=environment)
    out, state = torch.load(tmp_path / "out.pt")
    assert torch.equal(out, net(torch.ones(1, 4)))
    assert list(state) == list(net.state_dict())
