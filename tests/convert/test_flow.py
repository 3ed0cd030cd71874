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
