"""Which dimension holds the channels."""

import pytest
import torch
import torch.nn.functional as F
from checking import assert_converted, sizes, units
from torch import nn

import torch_srelu as ts

pytestmark = pytest.mark.usefixtures("one_thread")


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, 4)
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8))

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = F.relu(x.permute(0, 2, 3, 1))
        x = self.mlp(self.norm(x).flatten(1, 2))
        return F.relu(x).transpose(1, 2).relu()


def test_channels_are_followed_through_permutations():
    net = Tokens()
    assert_converted(net, torch.randn(2, 3, 16, 16))
    paths = ("relu", "relu_2", "mlp.1", "relu_3", "relu_4")
    assert sizes(net, *paths) == [(8, -3), (8, -1), (12, -1), (8, -1), (8, -2)]


def test_without_a_channel_dimension_the_unit_is_shared():
    class Scalar(nn.Module):
        def forward(self, x):
            return F.relu(x.sum())

    net = ts.convert(Scalar(), torch.ones(3))
    assert net(torch.ones(3)) == 3
    assert units(net)[0].num_channels == 1


def test_attention_scores_have_no_channels_so_any_length_goes_through():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return torch.relu(self.q(x) @ (x @ self.k).relu().mT)

    net = Attention()
    assert_converted(net, torch.randn(2, 5, 4), example=torch.randn(2, 5, 4))
    assert net(torch.randn(2, 9, 4)).shape == (2, 9, 9)
    assert sizes(net, "relu", "relu_2") == [(4, -1), (1, 1)]


@pytest.mark.parametrize("turn", [lambda x: x.mT, lambda x: x.transpose(-1, -2), torch.adjoint])
def test_a_transposed_linear_layer_keeps_its_channels(turn):
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 12)

        def forward(self, x):
            return F.relu(turn(self.layer(x)))

    net = ts.convert(Turned(), torch.randn(2, 16, 8))
    assert units(net)[0].num_channels == 12
    assert net(torch.randn(2, 20, 8)).shape == (2, 12, 20)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((9,), (1, 1)),
        ((2, 9), (9, -1)),
        ((2, 5, 9), (1, 1)),
        ((2, 5, 9, 3), (5, -3)),
        ((2, 5, 9, 3, 4), (5, -4)),
    ],
)
def test_channels_of_the_input_itself_are_in_dimension_1_by_convention(shape, expected):
    net = ts.convert(nn.Sequential(nn.ReLU()), torch.randn(shape))
    assert sizes(net, "0") == [expected]


def test_a_waveform_of_any_length_goes_through_a_shared_unit_or_what_is_skipped():
    class Waveform(nn.Module):
        def __init__(self, act):
            super().__init__()
            self.act, self.conv = act, nn.Conv1d(1, 3, 5)

        def forward(self, x):  # (N, samples)
            return F.relu(self.conv(self.act(x)[:, None]))

    example, longer = torch.randn(2, 20), torch.randn(2, 30)
    with pytest.raises(ValueError, match="parameters are for 20"):
        ts.convert(Waveform(nn.ReLU()), example)(longer)
    by_hand = ts.convert(Waveform(ts.SReLU(1)), example)
    skipped = ts.convert(Waveform(nn.ReLU()), example, skip="act")
    assert sizes(by_hand, "act", "relu") == [(1, 1), (3, -2)]
    assert sizes(skipped, "relu") == [(3, -2)]
    assert by_hand(longer).shape == skipped(longer).shape == (2, 3, 26)
