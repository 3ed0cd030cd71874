"""A network that keeps what it computes goes on computing with values."""

import copy
import functools
import traceback
from collections import OrderedDict, deque

import pytest
import torch
import torch.nn.functional as F
from checking import units
from torch import Tensor, nn

import torch_srelu as ts

pytestmark = pytest.mark.usefixtures("one_thread")


class Cache:
    """An object that modules keep tensors in."""

    shared: dict[int, Tensor] = {}  # noqa: RUF012, it is what the test is about

    def __init__(self):
        self.last = None
        self.table = {}
        self.inner = None


TABLE: dict[int, Tensor] = {}
PAIRS: dict[int, tuple[Tensor, Tensor]] = {}
LOSSES: list[Tensor] = []
SEEN: set[Tensor] = set()
RECENT: deque[Tensor] = deque(maxlen=2)
OBJECT = Cache()


@functools.lru_cache(maxsize=4)
def steps(n):
    return torch.arange(n).float(), n


@functools.cache
def steps_for_ever(n):
    return torch.arange(n).float()


def _in_dict(table, n):
    if n not in table:
        table[n] = torch.arange(n).float()
    return table[n]


def _in_list(values, x):
    values.append(x.mean())
    return len(values)


def _in_attribute(holder, n):
    if holder.last is None:
        holder.last = torch.arange(n).float()
    return holder.last


def _in_pair(n):
    if n not in PAIRS:
        PAIRS[n] = torch.arange(n).float(), torch.ones(n)
    return sum(PAIRS[n])


def _in_set(x):
    SEEN.add(x)
    return len(SEEN)


def forget():
    for cache in (TABLE, PAIRS, LOSSES, SEEN, RECENT, Cache.shared):
        cache.clear()
    steps.cache_clear()
    steps_for_ever.cache_clear()
    OBJECT.last = None


RESTORED = {
    "a dict of the module": lambda m, x: _in_dict(m.table, x.shape[-1]),
    "a dict in a list in a dict": lambda m, x: _in_dict(m.nested["all"][0], x.shape[-1]),
    "a list of the module": lambda m, x: _in_list(m.losses, x),
    "a dict of its own kind": lambda m, x: _in_dict(m.ordered, x.shape[-1]),
    "an attribute of the module": lambda m, x: _in_attribute(m, x.shape[-1]),
    "an attribute of an object of the module": lambda m, x: _in_attribute(m.cache, x.shape[-1]),
    "a dict of an object of the module": lambda m, x: _in_dict(m.cache.table, x.shape[-1]),
}
# By what the warning names.
OUT_OF_REACH = {
    "Cache": lambda m, x: _in_attribute(OBJECT, x.shape[-1]),
    "Cache (of an object)": lambda m, x: _in_dict(m.cache.inner.table, x.shape[-1]),
    "Cache (the class)": lambda m, x: _in_dict(Cache.shared, x.shape[-1]),
    "test_fake_tensors.TABLE": lambda m, x: _in_dict(TABLE, x.shape[-1]),
    "test_fake_tensors.PAIRS": lambda m, x: _in_pair(x.shape[-1]),
    "test_fake_tensors.LOSSES": lambda m, x: _in_list(LOSSES, x),
    "test_fake_tensors.SEEN": lambda m, x: _in_set(x),
    "test_fake_tensors.RECENT": lambda m, x: _in_list(RECENT, x),
    "steps": lambda m, x: steps(x.shape[-1])[0],
    "steps_for_ever": lambda m, x: steps_for_ever(x.shape[-1]),
}


class Keeps(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.way = way
        self.last = None
        self.table, self.ordered, self.losses = {}, OrderedDict(), []
        self.nested = {"all": [{}]}
        self.cache = Cache()
        self.cache.inner = Cache()

    def forward(self, x):
        return F.relu(self.linear(x) + self.way(self, x))


@pytest.mark.parametrize("name", RESTORED)
def test_what_a_network_keeps_has_values(name):
    net, x = Keeps(RESTORED[name]).eval(), torch.randn(3, 4)
    before = copy.deepcopy(net)(x)
    ts.convert(net)
    assert len(units(net)) == 1
    y = net(x)
    assert type(y) is Tensor
    assert torch.equal(y, before)


@pytest.mark.parametrize("name", OUT_OF_REACH)
def test_a_warning_names_what_cannot_be_restored(name):
    net, x = Keeps(OUT_OF_REACH[name]).eval(), torch.randn(3, 4)
    original = copy.deepcopy(net)
    forget()
    with pytest.warns(UserWarning, match=rf"in {name.split()[0]}: clear it before") as warned:
        ts.convert(net)
    assert warned[0].filename == __file__
    assert len(units(net)) == 1
    forget()
    net.cache.inner.table.clear()
    y = net(x)
    assert type(y) is Tensor
    forget()
    assert torch.equal(y, original(x))
    forget()


def test_nothing_is_taken_out_of_the_containers_of_others():
    held = torch.arange(4).float()
    net = Keeps(lambda m, x: _in_list(LOSSES, x) + _in_dict(TABLE, x.shape[-1]))
    LOSSES[:], TABLE[4] = [held], held
    with pytest.warns(UserWarning, match=r"in test_fake_tensors\.LOSSES: clear"):
        ts.convert(net)
    assert LOSSES[0] is held
    assert TABLE[4] is held
    forget()


def test_the_cache_of_autocast_is_cleared():
    net, x = Keeps(lambda m, x: 0.0), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        ts.convert(net)
        assert type(net(x)) is Tensor


def test_an_interrupt_stays_one_and_an_error_that_is_its_own_cause_is_told():
    def interrupt(m, x):
        kept = x + 1
        raise KeyboardInterrupt(kept.shape)

    def own_cause(m, x):
        error = ValueError("its own cause")
        raise error from error

    with pytest.raises(KeyboardInterrupt):
        ts.convert(Keeps(interrupt))
    with pytest.raises(ValueError, match="its own cause"):
        ts.convert(Keeps(own_cause))


def test_the_variables_of_an_error_that_is_being_handled_are_left_alone():
    def boom():
        secret = [1, 2, 3]
        raise KeyError(len(secret))

    def fail(m, x):
        raise RuntimeError("no")

    kept = []
    try:
        boom()
    except KeyError as error:
        with pytest.raises(ValueError, match="no"):
            ts.convert(Keeps(fail))
        kept += [dict(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert kept[-1]["secret"] == [1, 2, 3]


def test_what_a_run_with_values_overwrites_is_no_problem():
    def remember(m, x):
        OBJECT.last = x
        return x.sum().item()

    net, x = Keeps(remember), torch.randn(2, 4)
    ts.convert(net, x)
    assert len(units(net)) == 1
    assert type(OBJECT.last) is Tensor
    OBJECT.last = None
