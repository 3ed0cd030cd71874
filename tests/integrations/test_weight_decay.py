"""Excluding SReLU from the weight decay of an existing optimizer."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedules

import torch_srelu as ts
from torch_srelu.integrations.weight_decay import add_undecayed_groups, move_to_undecayed_group


class Decay:
    """A factor that is an object: it goes into the state of the scheduler."""

    def __init__(self):
        self.base = 0.9

    def __call__(self, step):
        return self.base**step


SCHEDULES = {
    "lambda": lambda o: schedules.LambdaLR(o, lambda step: 0.9**step),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 10),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=10),
    "cyclic": lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "object": lambda o: schedules.LambdaLR(o, Decay()),
    "chain": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o), schedules.ExponentialLR(o, 0.9)], [2]
    ),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), ts.SReLU(6), nn.Linear(6, 4), ts.SReLU(4))


def two_groups(net):
    """Groups as the Trainer of transformers makes them: by weight decay."""
    decayed = [p for name, p in net.named_parameters() if "bias" not in name]
    rest = [p for name, p in net.named_parameters() if "bias" in name]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def train(net, optimizer, scheduler, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(3, 4)).square().sum().backward()
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("name", SCHEDULES)
def test_added_groups_train_as_with_param_groups(name):
    net, twin = network(), network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5, weight_decay=0.1)
    scheduler = SCHEDULES[name](optimizer)
    add_undecayed_groups(net, optimizer, [scheduler])
    groups = ts.param_groups(twin, lr=0.05, weight_decay=0.1)
    reference = torch.optim.SGD(groups, momentum=0.5)
    train(net, optimizer, scheduler, 5)
    train(twin, reference, SCHEDULES[name](reference), 5)
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_moved_parameters_train_as_with_param_groups():
    net, twin = network(), network()
    optimizer = torch.optim.AdamW(two_groups(net), lr=0.01)
    move_to_undecayed_group(net, optimizer)
    reference = torch.optim.AdamW(ts.param_groups(twin, lr=0.01, groups=two_groups(twin)))
    for network_, o in ((net, optimizer), (twin, reference)):
        train(network_, o, SCHEDULES["cosine"](o), 5)
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("way", ["split", "move", "move twice", "move, load, move"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_resumed_run_is_the_same_run(name, way):
    def start(net, saved=None):
        optimizer = torch.optim.AdamW(two_groups(net), lr=0.01)
        scheduler = SCHEDULES[name](optimizer)
        if way == "split":
            add_undecayed_groups(net, optimizer, [scheduler])
        if way == "move, load, move":
            move_to_undecayed_group(net, optimizer)
        if saved:
            net.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
            scheduler.load_state_dict(saved[2])
        if way.startswith("move"):
            move_to_undecayed_group(net, optimizer)
        if way == "move twice":
            move_to_undecayed_group(net, optimizer)
        return optimizer, scheduler

    net = network()
    optimizer, scheduler = start(net)
    train(net, optimizer, scheduler, 3)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict(), scheduler.state_dict()))
    train(net, optimizer, scheduler, 3)
    resumed = network()
    optimizer, scheduler = start(resumed, saved)
    train(resumed, optimizer, scheduler, 3)
    for a, b in zip(net.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("way", [add_undecayed_groups, move_to_undecayed_group])
def test_an_optimizer_without_decay_stays_as_it_is(way):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = optimizer.state_dict()
    way(net, optimizer)
    assert optimizer.state_dict() == before


def test_move_leaves_an_optimizer_that_has_no_place_to_move_to():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)
    move_to_undecayed_group(net, optimizer)
    assert optimizer.param_groups[0]["params"] == list(net.parameters())
    with pytest.raises(ValueError, match=r"build it from torch_srelu.param_groups"):
        ts.AdaptiveInit(net, optimizer)


def test_a_state_of_other_groups_is_refused_by_a_moved_optimizer():
    net = network()
    optimizer = torch.optim.AdamW(two_groups(net), lr=0.01)
    move_to_undecayed_group(net, optimizer)
    other = torch.optim.AdamW(net[0].parameters(), lr=0.01).state_dict()
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(other)
    assert optimizer.state_dict() == before


def names_by_group(optimizer):
    return [list(group["param_names"]) for group in optimizer.param_groups]


def test_names_go_with_their_parameters():
    net = network()
    names = {p: name for name, p in net.named_parameters()}
    alone = torch.optim.SGD(net.named_parameters(), lr=0.1, weight_decay=0.1)
    add_undecayed_groups(net, alone)
    decayed, rest = (
        [(n, p) for n, p in net.named_parameters() if ("bias" in n) == bias] for bias in (0, 1)
    )
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    moved = torch.optim.SGD(copy.copy(groups), lr=0.1)
    built = names_by_group(moved)
    move_to_undecayed_group(net, moved)
    for optimizer in (alone, moved):
        assert names_by_group(optimizer) == [
            [names[p] for p in group["params"]] for group in optimizer.param_groups
        ]
    state = moved.state_dict()
    assert [group["param_names"] for group in state["param_groups"]] == built
    moved.load_state_dict(state)
    assert names_by_group(moved) != built
