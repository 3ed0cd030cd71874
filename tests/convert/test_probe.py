"""A run leaves no trace, and bad input nothing at all."""

import copy

import pytest
import torch
import torch.nn.functional as F
from checking import units
from torch import nn

import torch_srelu as ts

pytestmark = pytest.mark.usefixtures("one_thread")


class Stateful(nn.Module):
    """Counts, drops at random, remembers and decides by value."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout()
        self.last = None

    def forward(self, x):
        x = self.drop(self.norm(self.linear(x)))
        self.last = x
        return F.relu(x) if x.sum().item() < 1e9 else x


def test_converting_leaves_no_trace_in_buffers_random_state_and_attributes():
    net, x = Stateful(), torch.randn(8, 4)
    before, state, y = copy.deepcopy(net.state_dict()), torch.get_rng_state(), x.clone()
    ts.convert(net, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(net.state_dict()[key], value) for key, value in before.items())
    assert net.last is None
    assert torch.equal(x, y)
    assert len(units(net)) == 1


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
        with pytest.raises(ValueError, match=f"{argument}='layr' fits no module"):
            ts.convert(net, **{argument: "layr"})
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ts.convert(net, torch.ones(1, 7))
    with pytest.raises(ValueError, match="Pass one as example="):
        ts.convert(nn.Bilinear(2, 3, 4))
    with pytest.raises(ValueError, match="Pass one as example="):
        ts.convert(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(2, 3)))
    assert type(net[1]) is nn.ReLU
