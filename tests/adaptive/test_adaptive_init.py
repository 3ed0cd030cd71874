"""Adaptive initialisation: what adapt sets and tells, and what it refuses."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from small_networks import batches, convnet, sgd, train, units
from torch_srelu import AdaptiveInit, LazySReLU, SReLU, param_groups
from torch_srelu.adaptive.quantile_search import NotFiniteError
from torch_srelu.module import NAMES

pytestmark = pytest.mark.usefixtures("one_thread")


def inputs(model, data):
    """All inputs of each unit in eval mode, (channels, n), by name."""
    model = copy.deepcopy(model).eval()
    seen = {name: [] for name in units(model)}
    for name, unit in units(model).items():
        unit.register_forward_pre_hook(
            lambda unit, args, name=name: seen[name].append(
                args[0].transpose(0, unit.dim).flatten(1)
            )
        )
    with torch.no_grad():
        for x, _ in data:
            model(x)
    return {name: torch.cat(parts, 1) for name, parts in seen.items()}


# ---- what adapt sets ----


@pytest.mark.parametrize("scope", ["channel", "layer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equals_sorting_all_inputs(scope, dtype):
    model, data = convnet().to(dtype), batches(dtype=dtype)
    optimizer = sgd(model)
    init = AdaptiveInit(model, optimizer, quantile=0.9, scope=scope)
    train(model, optimizer, data)
    expected = {}
    for name, values in inputs(model, data).items():
        values = values.flatten().unsqueeze(0) if scope == "layer" else values
        rank = -(-9 * values.shape[1] // 10)
        expected[name] = values.sort(1).values[:, rank - 1]
    before = model.eval()(data[0][0])
    init.adapt(data)
    assert torch.equal(model(data[0][0]), before)  # a_r = 1: the same function to the last bit
    for name, unit in units(model).items():
        assert torch.equal(unit.t_r.detach(), expected[name].expand_as(unit.t_r))
    assert init.adapted
    assert not any(unit.frozen for unit in units(model).values())


@pytest.mark.parametrize("order", ["one by one", "one batch", "reversed", "channels last"])
def test_batching_and_order_do_not_matter(order):
    # The unit comes first: layers before it might compute other numbers for other batch sizes.
    model = nn.Sequential(SReLU(3), nn.Flatten(), nn.Linear(48, 3))
    x = torch.randn(24, 3, 4, 4, generator=torch.Generator().manual_seed(2))
    ways = {
        "one by one": x.split(1),
        "one batch": [x],
        "reversed": x.flip(0).split(7),
        "channels last": x.contiguous(memory_format=torch.channels_last).split(5),
    }
    AdaptiveInit(model, sgd(model)).adapt(list(ways[order]))
    values = x.transpose(0, 1).flatten(1).sort(1).values
    assert torch.equal(units(model)["0"].t_r.detach(), values[:, -(-9 * 24 * 16 // 10) - 1])


def test_t_r_stays_where_a_r_is_not_one():
    model, data = convnet(), batches()
    first = units(model)["1"]
    with torch.no_grad():
        first.a_r[2:4] = 0.0
        first.t_r[2:4] = 6.0
    init = AdaptiveInit(model, sgd(model))
    before = model.eval()(data[0][0])
    init.adapt(data)
    assert torch.equal(model(data[0][0]), before)
    assert first.t_r[2:4].tolist() == [6.0, 6.0]
    assert 6.0 not in first.t_r[[0, 1, 4, 5]].tolist()
    (row,) = (line.split() for line in init.summary().splitlines() if line.startswith("1 "))
    assert row[-1] == "2"


def test_units_that_share_their_parameters_or_run_twice_pool_their_inputs():
    shared = SReLU(4)
    twin = SReLU(4)
    for name in NAMES:
        twin.register_parameter(name, getattr(shared, name))
    model = nn.Sequential(shared, nn.Linear(4, 4), shared, nn.Linear(4, 4), twin)
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        second = model[1](model[0](x))
        third = model[3](model[2](second))
    everything = torch.cat((x, second, third)).sort(0).values
    AdaptiveInit(model, sgd(model)).adapt([x])
    assert torch.equal(shared.t_r.detach(), everything[54 - 1])
    assert not shared.frozen
    assert not twin.frozen


def test_repr_says_which_phase_it_is():
    model = convnet()
    init = AdaptiveInit(model, sgd(model), quantile=0.8, scope="layer")
    assert repr(init) == "AdaptiveInit(quantile=0.8, scope='layer', 3 units frozen)"
    init.adapt(batches())
    assert repr(init) == "AdaptiveInit(quantile=0.8, scope='layer', 3 units adapted)"
    resumed = AdaptiveInit(model, sgd(model), quantile=0.8, scope="layer")
    resumed.load_state_dict(init.state_dict())
    assert repr(resumed) == repr(init)


def test_summary_tells_what_was_found():
    model = nn.Sequential(SReLU(3))
    init = AdaptiveInit(model, sgd(model))
    assert "frozen: 1 SReLU unit until adapt" in init.summary()
    ramp = torch.arange(1.0, 11.0)
    x = torch.stack((ramp, -ramp, torch.zeros(10)), 1)
    init.adapt([x])
    title, _, row = init.summary().splitlines()
    assert "0.9 quantile" in title
    # channels, inputs, smallest .. median .. largest t_r, share beyond, crossed, dead, kept
    assert row.split() == ["0", "3", "10", "-2", "..", "0", "..", "9", "46.67%", "1", "2", "0"]


def test_summary_counts_no_inputs_beyond_a_t_r_that_was_kept():
    model = nn.Sequential(SReLU(2), SReLU(2, t_r=6.0, a_r=0.0))
    with torch.no_grad():
        model[0].a_r[1] = 0.5
    init = AdaptiveInit(model, sgd(model))
    ramp = torch.arange(1.0, 11.0)
    init.adapt([torch.stack((ramp, torch.ones(10)), 1)])  # beyond the quantile of ones: all
    again = AdaptiveInit(model, sgd(model))
    again.load_state_dict(init.state_dict())
    for rows in (init.summary(), again.summary()):
        _, _, some, none = (line.split() for line in rows.splitlines())
        assert some[-4:] == ["20.00%", "0", "0", "1"]
        assert none[-4:] == ["-", "0", "0", "2"]


# ---- bad input ----


def test_bad_arguments_of_the_constructor():
    model = convnet()
    for q in (0, -0.1, 1.5, math.nan, "0.9"):
        with pytest.raises(ValueError, match=r"quantile must be in \(0, 1\]"):
            AdaptiveInit(model, sgd(model), quantile=q)
    with pytest.raises(ValueError, match="scope must be one of channel, layer"):
        AdaptiveInit(model, sgd(model), scope="unit")
    with pytest.raises(TypeError, match=r"torch.nn.Module, got SGD: AdaptiveInit\(model, optim"):
        AdaptiveInit(sgd(model), model)  # type: ignore[arg-type]
    plain = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="Linear has no SReLU"):
        AdaptiveInit(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    with pytest.raises(ValueError, match=r"would decay 12 SReLU parameters.*param_groups"):
        AdaptiveInit(model, torch.optim.AdamW(model.parameters()))
    with pytest.raises(ValueError, match=r"does not hold 12 SReLU parameters.*param_groups"):
        AdaptiveInit(model, torch.optim.SGD(model[0].parameters(), lr=0.1))
    for absent in (None, list(model.parameters())):
        with pytest.raises(TypeError, match=r"a (NoneType|list), expected.*param_groups"):
            AdaptiveInit(model, absent)
    with pytest.raises(ValueError, match=r"would shrink, by lambd, 12 SReLU.*lambd=0"):
        AdaptiveInit(model, torch.optim.ASGD(param_groups(model, lr=0.1)))
    other = convnet()
    weights, ours = param_groups(other, lr=0.1)
    AdaptiveInit(other, torch.optim.ASGD([weights, {**ours, "lambd": 0}]))
    computed = nn.Sequential(nn.Linear(2, 2), SReLU(2))
    parametrize.register_parametrization(computed[1], "t_r", nn.Softplus())
    with pytest.raises(ValueError, match="1: t_r is computed from other parameters"):
        AdaptiveInit(computed, sgd(computed))
    lazy = nn.Sequential(nn.Linear(2, 2), LazySReLU())
    with pytest.raises(ValueError, match="1: the number of channels is not known"):
        AdaptiveInit(lazy, torch.optim.SGD(lazy[0].parameters(), lr=0.1))
    assert not any(unit.frozen for unit in units(model).values())


def test_second_adapt_and_adapt_in_backward_are_refused():
    model, data = convnet(), batches()
    init = AdaptiveInit(model, sgd(model))
    out = model(data[0][0])
    out.register_hook(lambda grad: init.adapt(data))
    with pytest.raises(RuntimeError, match="inside a backward pass"):
        out.sum().backward()
    assert not init.adapted
    init.adapt(data)
    with pytest.raises(RuntimeError, match="done already"):
        init.adapt(data)


def test_weight_decay_that_came_after_the_freeze_is_refused():
    model = convnet()
    optimizer = sgd(model)
    init = AdaptiveInit(model, optimizer)
    for group in optimizer.param_groups:  # as schedules of weight decay do
        group["weight_decay"] = 0.1
    with pytest.raises(ValueError, match="would decay 12 SReLU parameters"):
        init.adapt(batches())
    assert not init.adapted


def test_state_of_another_setting_is_refused():
    model, other = convnet(), nn.Sequential(SReLU(3))
    init = AdaptiveInit(model, sgd(model))
    init.adapt(batches())
    with pytest.raises(ValueError, match=r"saved with quantile=0.9.*0.8"):
        AdaptiveInit(model, sgd(model), quantile=0.8).load_state_dict(init.state_dict())
    with pytest.raises(ValueError, match="units 1, 4, 8, this model has 0"):
        AdaptiveInit(other, sgd(other)).load_state_dict(init.state_dict())
    frozen = AdaptiveInit(other, sgd(other))
    with pytest.raises(ValueError, match=r"lacks quantile, scope, result.*state_dict\(\) gave"):
        frozen.load_state_dict({"repeated": 0})
    assert frozen.state_dict()["result"] == ""


def test_a_quantile_that_its_parameter_cannot_hold_is_refused():
    model = nn.Sequential(SReLU(4, dtype=torch.float16))
    init = AdaptiveInit(model, sgd(model))
    before = model[0].t_r.detach().clone()
    with pytest.raises(NotFiniteError, match=r"^0: .*too large for t_r in torch.float16"):
        init.adapt([torch.full((3, 4), 1e6)])
    assert torch.equal(model[0].t_r.detach(), before)
    assert not init.adapted
