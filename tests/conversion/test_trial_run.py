"""A run leaves no trace, and bad input nothing at all."""

import copy

import pytest
import torch
import torch.nn.functional as F
from checking import units
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import torch_srelu as ts

pytestmark = pytest.mark.usefixtures("one_thread")


RUNS = set()  # of Stateful: whether on fake tensors and whether in training mode


class Stateful(nn.Module):
    """Counts, drops at random, remembers, constrains its weights, and may decide by value."""

    def __init__(self, by_value):
        super().__init__()
        self.by_value = by_value
        self.linear = nn.Linear(4, 4)
        self.norm, self.mean_of_all = nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=None)
        self.drop = nn.Dropout()
        self.scale = nn.Parameter(torch.ones(4))
        self.bound = nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.unregistered, self.listed = torch.ones(4), [torch.ones(4)]
        self.last = None

    def forward(self, x):
        RUNS.add((isinstance(x, FakeTensor), self.training))
        self.steps += 1
        self.scale.mul_(0.5)
        self.bound.data = self.bound.data.clamp(max=1)
        self.unregistered.mul_(0.5)
        self.listed[0].mul_(0.5)
        x = self.drop(self.mean_of_all(self.norm(self.linear(x))))
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        self.last = x
        return F.relu(x) if not self.by_value or x.sum().item() < 1e9 else x


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("by_value", [False, True])
def test_converting_leaves_no_trace_in_tensors_random_state_and_attributes(by_value, training):
    net, x = Stateful(by_value).train(training), torch.randn(8, 4)
    before, state, y = copy.deepcopy(net.state_dict()), torch.get_rng_state(), x.clone()
    RUNS.clear()
    ts.convert(net, x)
    assert (not by_value, True) in RUNS
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(net.state_dict()[key], value) for key, value in before.items())
    assert [type(p) for p in net.parameters()] == [nn.Parameter] * len(list(net.parameters()))
    assert torch.equal(net.unregistered, torch.ones(4))
    assert torch.equal(net.listed[0], torch.ones(4))
    assert net.last is None
    assert net.training is training
    assert torch.equal(x, y)
    assert len(units(net)) == 1


def test_converting_reads_no_weight_that_changes_by_being_read():
    layer = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3))
    net = nn.Sequential(layer, nn.ReLU()).train()
    before = copy.deepcopy(net.state_dict())
    ts.convert(net)
    assert len(units(net)) == 1
    assert all(torch.equal(net.state_dict()[key], value) for key, value in before.items())


class AuxiliaryHead(nn.Module):
    """In training mode, which it is not converted in, only 32x32 pixels will do."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 32 * 32, 5)

    def forward(self, x):
        x = F.relu(self.conv(x))
        return (x, F.relu(self.head(x.flatten(1)))) if self.training else x


def test_the_input_that_is_made_up_fits_training_mode_too():
    net = ts.convert(AuxiliaryHead().eval())
    assert [unit.num_channels for unit in units(net)] == [4, 5]
    assert not ts.summary(net).left


class ReadsItsHook(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.seen = nn.Linear(4, 4), {}
        self.linear.register_forward_hook(self.see)

    def see(self, module, args, output):
        self.seen["linear"] = output

    def forward(self, x):
        self.linear(x)
        return F.relu(self.seen["linear"])


def test_an_error_of_a_network_with_hooks_says_that_they_were_off():
    with pytest.raises(KeyError, match="linear") as error:
        ts.convert(ReadsItsHook(), torch.ones(2, 4))
    assert any("without its hooks" in note for note in error.value.__notes__)
    with pytest.raises(ValueError, match=r"KeyError: 'linear'; .* without its hooks"):
        ts.convert(ReadsItsHook())
    with pytest.raises(RuntimeError) as other:
        ts.convert(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(1, 7))
    assert not hasattr(other.value, "__notes__")


def test_bad_input_is_refused_and_changes_nothing():
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module"):
        ts.convert(torch.relu)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing to convert"):
        ts.convert(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="itself a ReLU"):
        ts.convert(nn.ReLU())
    with pytest.raises(ValueError, match=r"scripted.* exported .* or traced"):
        ts.convert(torch.jit.ScriptModule())
    with pytest.raises(ValueError, match="then wrap it"):
        ts.convert(nn.DataParallel(nn.Sequential(nn.Linear(2, 2), nn.ReLU())))
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    for argument in ("only", "skip"):
        with pytest.raises(ValueError, match=f"{argument}='layr' matches no module"):
            ts.convert(net, **{argument: "layr"})
        for names in (1, [1]):
            with pytest.raises(TypeError, match=f"{argument} must be names .* got a int.* strings"):
                ts.convert(net, **{argument: names})
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ts.convert(net, torch.ones(1, 7))
    with pytest.raises(ValueError, match="Pass one as example="):
        ts.convert(nn.Bilinear(2, 3, 4))
    with pytest.raises(ValueError, match="Pass one as example="):
        ts.convert(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(2, 3)))
    assert type(net[1]) is nn.ReLU
