"""Adaptive initialisation: the freeze, what adapt sets, the thaw."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from small_networks import batches, convnet, same, sgd, threads, train, units
from torch_srelu import AdaptiveInit, LazySReLU, SReLU, param_groups
from torch_srelu.module import NAMES
from torch_srelu.optim import srelu_parameters


def leaky(_channels: int) -> nn.Module:
    return nn.LeakyReLU(0.2)


class LeakyBesideFour(nn.LeakyReLU):
    """Leaky ReLU that also owns four parameters without use.

    `clip_grad_norm_` rounds the sum of its norms differently when there are more of them, be they
    zero: for a comparison to the last bit, both networks must have equally many.
    """

    def __init__(self, channels: int):
        super().__init__(0.2)
        self.unused = nn.ParameterList(torch.zeros(channels) for _ in NAMES)


def weights_of(model):
    """Parameters of layers other than activations."""
    layers = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)
    return {
        f"{index}.{name}": p
        for index, layer in enumerate(model)
        if isinstance(layer, layers)
        for name, p in layer.named_parameters()
    }


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


@pytest.fixture(autouse=True)
def one_thread():
    with threads(1):
        yield


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


# ---- the freeze ----

OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"momentum": 0.9}),
    "SGD foreach": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "foreach": True}),
    "SGD fused": (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
    "Adam foreach": (torch.optim.Adam, {"foreach": True}),
    "Adam fused": (torch.optim.Adam, {"fused": True}),
    "AdamW": (torch.optim.AdamW, {"foreach": False}),
    "AdamW foreach": (torch.optim.AdamW, {"foreach": True}),
    "AdamW fused": (torch.optim.AdamW, {"fused": True}),
}


def plain_step(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def closure_step(model, optimizer, x, y):
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)


def clip(model):
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad  # of LeakyBesideFour
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def clipped_step(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    clip(model)
    optimizer.step()


def accumulated_step(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=False)
    for part in range(2):
        F.cross_entropy(model(x[part::2]), y[part::2]).backward()
    optimizer.step()


class ScaledStep:
    """Loss scaling that grows until it overflows, so that some steps are skipped."""

    def __init__(self):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=1)

    def __call__(self, model, optimizer, x, y):
        optimizer.zero_grad()
        self.scaler.scale(F.cross_entropy(model(x), y)).backward()
        self.scaler.unscale_(optimizer)
        clip(model)
        self.scaler.step(optimizer)
        self.scaler.update()


STEPS = {
    "plain": lambda: plain_step,
    "closure": lambda: closure_step,
    "clipped": lambda: clipped_step,
    "accumulated": lambda: accumulated_step,
    "scaled": ScaledStep,
}
CASES = [(name, "plain") for name in OPTIMIZERS] + [
    ("SGD", step) for step in STEPS if step != "plain"
]
CASES += [("AdamW fused", "scaled"), ("AdamW", "closure")]


@pytest.mark.parametrize(("optimizer", "step"), CASES)
def test_frozen_network_is_the_leaky_one(optimizer, step):
    make, options = OPTIMIZERS[optimizer]
    (x, y), *_ = batches((6,))
    weights = []
    for act in (SReLU, LeakyBesideFour if step in ("clipped", "scaled") else leaky):
        model = convnet(act)
        steps = make(param_groups(model, lr=0.01, weight_decay=0.01), **options)
        start = {name: p.detach().clone() for name, p in srelu_parameters(model).items()}
        if act is SReLU:
            AdaptiveInit(model, steps)
        torch.manual_seed(5)
        one = STEPS[step]()
        for _ in range(50):
            one(model, steps, x, y)
        for name, p in srelu_parameters(model).items():
            assert torch.equal(p, start[name])
            assert p.grad is not None
            assert not p.grad.any()
        weights.append(weights_of(model))
    assert weights[0].keys() == weights[1].keys()
    untrained = weights_of(convnet(leaky))
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        assert not torch.equal(value, untrained[name])


@pytest.mark.parametrize("name", ["SGD", "Adam fused", "AdamW foreach"])
def test_first_step_after_the_thaw_is_one_from_fresh_state(name):
    make, options = OPTIMIZERS[name]
    model, data = convnet(), batches((9,))
    optimizer = make(param_groups(model, lr=0.01, weight_decay=0.01), **options)
    init = AdaptiveInit(model, optimizer)
    train(model, optimizer, data * 3)
    init.adapt(data)
    state, ours = optimizer.state, srelu_parameters(model)
    assert not any(p in state for p in ours.values())
    assert all(p in state for p in weights_of(model).values())
    fresh, start = copy.deepcopy(model), copy.deepcopy(model)
    new = make(param_groups(fresh, lr=0.01, weight_decay=0.01), **options)
    for network, stepper in ((model, optimizer), (fresh, new)):
        torch.manual_seed(0)  # dropout
        train(network, stepper, data)
    for name, p in ours.items():
        assert torch.equal(p, srelu_parameters(fresh)[name])
    moved = [name for name, p in srelu_parameters(start).items() if not torch.equal(p, ours[name])]
    assert {name.split(".")[1] for name in moved} >= {"a_r", "t_l", "a_l"}


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_resumed_run_is_the_same_run(stop, tmp_path):
    data, switch, epochs = batches(), 2, 4

    def run(first, last, state=None):
        model = convnet()
        optimizer = torch.optim.Adam(param_groups(model, lr=0.01))
        init = AdaptiveInit(model, optimizer)
        torch.manual_seed(first)
        if state is not None:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            init.load_state_dict(state["init"])
        for epoch in range(first, last):
            torch.manual_seed(epoch)  # dropout
            train(model, optimizer, data)
            if epoch + 1 == switch:
                init.adapt(data)
        return {
            s: o.state_dict()
            for s, o in (("model", model), ("optimizer", optimizer), ("init", init))
        }

    whole = run(0, epochs)
    torch.save(run(0, stop), tmp_path / "checkpoint.pt")
    resumed = run(stop, epochs, torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    assert whole["init"]["result"] is not None
    assert same(whole, resumed)


# ---- bad input ----


def test_bad_arguments_of_the_constructor():
    model = convnet()
    for q in (0, -0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"quantile must be in \(0, 1\]"):
            AdaptiveInit(model, sgd(model), quantile=q)
    with pytest.raises(ValueError, match="scope must be one of channel, layer"):
        AdaptiveInit(model, sgd(model), scope="unit")
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


def test_state_of_another_setting_is_refused():
    model, other = convnet(), nn.Sequential(SReLU(3))
    init = AdaptiveInit(model, sgd(model))
    init.adapt(batches())
    with pytest.raises(ValueError, match=r"saved with quantile=0.9.*0.8"):
        AdaptiveInit(model, sgd(model), quantile=0.8).load_state_dict(init.state_dict())
    with pytest.raises(ValueError, match="units 1, 4, 8, this model has 0"):
        AdaptiveInit(other, sgd(other)).load_state_dict(init.state_dict())
    frozen = AdaptiveInit(other, sgd(other))
    assert frozen.state_dict()["result"] is None
