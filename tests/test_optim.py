"""SReLU in optimizers: its groups, and what is forgotten of it."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

from torch_srelu import SReLU, param_groups
from torch_srelu.optim import clear_state, srelu_parameters


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), SReLU(6), nn.Linear(6, 6), SReLU(1), nn.Linear(6, 2))


def test_srelu_apart_without_decay_and_everything_once():
    model = net()
    plain, srelu = param_groups(model, lr=0.1, weight_decay=1e-4, lr_scale=0.5)
    assert (plain["lr"], plain["weight_decay"]) == (0.1, 1e-4)
    assert (srelu["lr"], srelu["weight_decay"]) == (0.05, 0.0)
    units = [model[1], model[3]]
    assert set(srelu["params"]) == {p for unit in units for p in unit.parameters()}
    together = [*plain["params"], *srelu["params"]]
    assert len(together) == len(set(together))
    assert set(together) == set(model.parameters())


def test_own_groups_keep_their_options():
    model = net()
    own = [
        {"params": model[:2].parameters(), "lr": 0.01, "momentum": 0.5},
        {"params": model[4].bias, "weight_decay": 0.3},
    ]
    groups = param_groups(model, lr=0.1, weight_decay=1e-4, lr_scale=2.0, groups=own)
    names = {p: name for name, p in model.named_parameters()}
    found = {
        frozenset(names[p] for p in g["params"]): (g["lr"], g["weight_decay"], g.get("momentum"))
        for g in groups
    }
    assert found == {
        frozenset({"0.weight", "0.bias"}): (0.01, 1e-4, 0.5),
        frozenset({"4.bias"}): (0.1, 0.3, None),
        frozenset({"2.weight", "2.bias", "4.weight"}): (0.1, 1e-4, None),
        frozenset({"1.t_r", "1.a_r", "1.t_l", "1.a_l"}): (0.02, 0.0, 0.5),
        frozenset({"3.t_r", "3.a_r", "3.t_l", "3.a_l"}): (0.2, 0.0, None),
    }
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))
    torch.optim.SGD(groups, lr=1.0)


def test_tied_parameters_are_in_one_group_once():
    model, twin = net(), SReLU(6)
    twin.register_parameter("t_r", srelu_parameters(model)["1.t_r"])
    model.append(twin)
    model.append(model[1])
    model[4].weight = model[2].weight
    groups = param_groups(model, lr=0.1)
    together = [p for group in groups for p in group["params"]]
    assert len(together) == len(set(together)) == len(list(model.parameters()))
    assert list(srelu_parameters(model)).count("1.t_r") == 1
    assert len(srelu_parameters(model)) == 4 + 4 + 3
    torch.optim.SGD(groups)


def test_a_model_without_srelu_has_one_group():
    model = nn.Linear(2, 2)
    (group,) = param_groups(model, lr=0.1, weight_decay=0.2)
    assert group == {"params": list(model.parameters()), "lr": 0.1, "weight_decay": 0.2}


def test_a_parameter_in_two_groups_is_refused():
    model = net()
    own = [{"params": model[0].parameters()}, {"params": [model[0].bias]}]
    with pytest.raises(ValueError, match="1 parameter more than once"):
        param_groups(model, lr=0.1, groups=own)


def test_parameters_behind_a_parametrization_or_pruning_are_not_decayed():
    model = net()
    unit = next(module for module in model if isinstance(module, SReLU))
    prune.random_unstructured(unit, "a_l", 0.5)
    parametrize.register_parametrization(unit, "t_l", nn.Tanh())
    groups = param_groups(model, lr=0.1, weight_decay=0.2)
    (apart,) = (group["params"] for group in groups if not group["weight_decay"])
    assert {id(p) for p in unit.parameters()} <= {id(p) for p in apart}


def test_learning_rates_are_numbers():
    model = net()
    own = [{"params": model[0].parameters(), "lr": None}]
    decay = {"lr": 0.1, "weight_decay": None}
    for options in ({"lr": "a"}, {"lr": 0.1, "lr_scale": "a"}, {"lr": 0.1, "groups": own}, decay):
        with pytest.raises(TypeError, match=r"must be a number.*got (str|NoneType)"):
            param_groups(model, **options)


@pytest.mark.parametrize(
    ("name", "value"), [("lr", -0.1), ("lr", math.nan), ("lr_scale", -1), ("weight_decay", -1e-4)]
)
def test_numbers_that_torch_does_not_check_are_not_negative(name, value):
    with pytest.raises(ValueError, match=f"{name} must be at least 0, got {value}"):
        param_groups(net(), **{"lr": 0.1, name: value})


def test_groups_hold_parameters():
    model = net()
    with pytest.raises(TypeError, match=r"groups must be dicts.*got a Parameter"):
        param_groups(model, lr=0.1, groups=model.parameters())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"groups must be dicts.*got a str"):
        param_groups(model, lr=0.1, groups={"params": model.parameters()})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='must have "params"'):
        param_groups(model, lr=0.1, groups=[{"lr": 1.0}])
    with pytest.raises(TypeError, match="must be parameters, got a tuple"):
        param_groups(model, lr=0.1, groups=[{"params": model.named_parameters()}])


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_decay_moves_everything_but_srelu(optimizer):
    model = net()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    steps = optimizer(param_groups(model, lr=0.1, weight_decay=0.5))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    steps.step()
    still = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    assert still == set(srelu_parameters(model))


def test_a_list_of_parameters_is_no_model() -> None:
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got list: pass the network"):
        param_groups(list(nn.Linear(2, 2).parameters()), lr=0.1)  # type: ignore[arg-type]


class Slotted:
    """A wrapper without attributes to look into."""

    __slots__ = ("param_groups", "state")

    def __init__(self, inside):
        self.param_groups, self.state = inside.param_groups, inside.state


@pytest.mark.parametrize("wrap", [lambda inside: inside, Slotted])
def test_clear_state_clears_the_state_of_these_parameters_alone(wrap):
    model = net()
    optimizer = torch.optim.Adam(param_groups(model, lr=0.1))
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    ours = srelu_parameters(model).values()
    clear_state(wrap(optimizer), ours)
    assert set(optimizer.state) == set(model.parameters()) - set(ours)
