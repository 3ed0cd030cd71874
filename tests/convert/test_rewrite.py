"""Rewritten methods."""

import copy
import importlib
import inspect
import os
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from checking import Loop, Reused, assert_converted, assert_same, units
from torch import nn

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
