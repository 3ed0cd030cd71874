"""Adaptive initialisation beside training: freezing, unfreezing, a resumed run."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.distributed import checkpoint
from torch.nn import functional as F

from small_networks import batches, convnet, same, sgd, train
from torch_srelu import AdaptiveInit, SReLU, param_groups
from torch_srelu.module import NAMES
from torch_srelu.optim import srelu_parameters

pytestmark = pytest.mark.usefixtures("one_thread")

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
def test_first_step_after_unfreezing_is_one_from_fresh_state(name):
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
    assert whole["init"]["result"] != ""
    assert same(whole, resumed)


def test_distributed_checkpoints_load_in_every_phase(tmp_path):
    """They load into the structure that a new AdaptiveInit has."""
    for phase in ("frozen", "adapted"):
        model = convnet()
        init = AdaptiveInit(model, sgd(model))
        if phase == "adapted":
            init.adapt(batches())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there is one process
            checkpoint.save({"init": init.state_dict()}, checkpoint_id=tmp_path / phase)
            resumed = AdaptiveInit(model, sgd(model))
            state = {"init": resumed.state_dict()}
            checkpoint.load(state, checkpoint_id=tmp_path / phase)
        resumed.load_state_dict(state["init"])
        assert resumed.state_dict() == init.state_dict()
        assert resumed.adapted is (phase == "adapted")
