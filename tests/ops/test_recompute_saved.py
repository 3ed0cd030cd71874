"""Memory under recompute_outputs: what is saved for the backward pass, and for how long."""

import contextlib
import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from recomputing import (
    CHANNELS,
    Residual,
    assert_same_gradients,
    conv,
    gradients,
    images,
    unit,
)
from small_networks import same
from torch_srelu import recompute_outputs
from torch_srelu.ops import recompute
from torch_srelu.ops.cpu import cpu_backend as cpu

pytestmark = pytest.mark.usefixtures("one_thread")


def saved_bytes(net, x, context) -> int:
    """What a forward pass has allocated and not freed, but for the result."""
    net(x)  # a first call, which may allocate once
    with (
        profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen,
        context,
    ):
        result = net(x)
    return sum(e.self_cpu_memory_usage for e in seen.events()) - result.nbytes


def nin(act) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(conv(), act(), nn.Conv2d(CHANNELS, CHANNELS, 1), act(), nn.MaxPool2d(2), nn.Dropout()),
        *(conv(), act(), nn.AvgPool2d(2), conv(), nn.BatchNorm2d(CHANNELS), act(), conv()),
        *(Residual(conv(), act(), conv()), act(), nn.Flatten(), nn.Linear(CHANNELS * 4, 3)),
    )


@pytest.mark.parametrize("autocast", [False, True])
def test_the_memory_of_in_place_relu(autocast) -> None:
    x = images()
    relu, ours = nin(lambda: nn.ReLU(inplace=True)), nin(unit)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast, cache_enabled=False):
        least = saved_bytes(relu, x, contextlib.nullcontext())
        assert saved_bytes(ours, x, contextlib.nullcontext()) > 1.3 * least
        assert saved_bytes(ours, x, recompute_outputs()) == least


class Stage(nn.Sequential):
    @recompute_outputs()
    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("apart", [False, True])
def test_a_part_of_a_network(apart) -> None:
    """Its first five layers, together or each on its own: the two outputs that they save."""
    x, plain, alone = images(), nin(unit), contextlib.nullcontext
    layers = [*nin(unit)]
    first = [Stage(layer) for layer in layers[:5]] if apart else [Stage(*layers[:5])]
    net = copy.deepcopy(nn.Sequential(*first, *layers[5:]))
    assert saved_bytes(plain, x, alone()) - saved_bytes(net, x, alone()) == 2 * x.nbytes
    assert same(*(gradients(n, x, alone()) for n in (net, plain)))
    assert all(p.grad is None for layer in layers for p in layer.parameters())


def test_of_units_in_a_row_only_the_first_input_is_saved() -> None:
    x = images(requires_grad=True)
    row, one = nn.Sequential(unit(), unit(), unit(), conv()), nn.Sequential(unit(), conv())
    three, first = (saved_bytes(net, x, recompute_outputs()) for net in (row, one))
    assert three == first
    assert_same_gradients(row, x)


@pytest.fixture
def _no_gc():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def memory_of(tensor: torch.Tensor) -> weakref.ref:
    return weakref.ref(tensor.untyped_storage())


@pytest.mark.usefixtures("_no_gc")
@pytest.mark.parametrize("backward", [True, False])
def test_nothing_stays_behind(backward) -> None:
    net = nin(unit)
    seen = []
    for module in net:
        module.register_forward_hook(lambda module, args, out: seen.append(memory_of(out)))
    with recompute_outputs():
        loss = net(images()).sum()
    if backward:
        loss.backward()
    del loss
    assert len(seen) == len(net)
    assert not any(storage() for storage in seen)
    assert not recompute._outputs


@pytest.mark.usefixtures("_no_gc")
@pytest.mark.parametrize("last", [torch.sigmoid, torch.log_softmax, torch.exp])
def test_operators_that_save_their_own_output_hold_no_graph(last) -> None:
    options = {"dim": 1} if last is torch.log_softmax else {}
    with recompute_outputs():
        y = last(conv()(unit()(images())), **options)
        held = weakref.ref(y)
        del y
    assert held() is None


@pytest.mark.usefixtures("_no_gc")
def test_an_output_that_lives_on_does_not_hold_its_input() -> None:
    first, act = conv(), unit()
    with recompute_outputs():
        x = first(images())
        y = act(x)
        conv()(y).sum().backward()
        references = memory_of(x)
        del x
        assert references() is None
        assert_same_gradients(conv(), y.detach())  # cannot be recomputed any more: is kept


@pytest.mark.usefixtures("_no_gc")
def test_an_output_that_lives_on_does_not_hold_its_parameters() -> None:
    act = unit()
    references = [weakref.ref(p) for p in act.parameters()]
    with recompute_outputs():
        y = act(images()).detach()
    del act
    assert [p() for p in references] == [None] * 4
    assert y.isfinite().all()  # is still there


def count_calls(monkeypatch) -> list:
    """A list that grows by one whenever a forward pass of SReLU is computed."""
    calls, original = [], cpu.forward

    def counted(*args):
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(cpu, "forward", counted)
    return calls


def test_an_output_is_recomputed_for_every_layer(monkeypatch) -> None:
    calls = count_calls(monkeypatch)
    with recompute_outputs():
        y = unit()(images(requires_grad=True))
        loss = conv()(y).sum() + (y**3).sum()
    loss.backward()
    assert len(calls) == 3  # forward, and once more for either


def test_nothing_is_recomputed_where_it_would_save_nothing(monkeypatch) -> None:
    """If no gradient goes through the unit, no other layer saves its input."""
    calls = count_calls(monkeypatch)
    act = unit().requires_grad_(False)
    with recompute_outputs():
        loss = conv()(act(images())).sum()
    loss.backward()
    with recompute_outputs(), torch.no_grad():
        act(images())
    assert len(calls) == 2


@pytest.mark.usefixtures("_no_gc")
def test_a_checkpointed_region_saves_no_more_than_before() -> None:
    first, act, last = conv(), unit(), conv()
    seen = []

    def region(x):
        x = first(x)
        seen.append(memory_of(x))
        return act(x)

    with recompute_outputs():
        y = checkpoint(region, images(), use_reentrant=False)
        z = last(y)
        assert seen[0]() is None
    z.sum().backward()
