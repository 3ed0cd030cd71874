"""Rectifiers that torch may compute past a unit are left, and all others are converted."""

import copy

import pytest
import torch
import torch.nn.functional as F
from checking import assert_converted, sizes, units
from torch import nn
from torch.ao.nn import intrinsic
from torch.ao.nn.intrinsic import qat as intrinsic_qat
from torch.ao.quantization import default_qat_qconfig

import torch_srelu as ts

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:no activation of"),
]


class OwnReLU(nn.ReLU):
    """Torch's fused kernel takes it for a ReLU."""


def encoder_layer(activation, **options):
    return nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, **options)


@pytest.mark.parametrize("activation", [F.relu, nn.ReLU(), nn.ReLU(inplace=True), OwnReLU()])
def test_a_fused_encoder_layer_is_left_because_it_would_bypass_the_unit(activation):
    layer = encoder_layer(activation, batch_first=True)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.TransformerEncoder(layer, 2)).eval()
    x = torch.randn(2, 5, 8)
    original = copy.deepcopy(net)
    ts.convert(net, x)
    assert sizes(net, "1") == [(8, -1)]
    assert len(units(net)) == 1
    left = ts.summary(net).left
    assert len(left) == 2
    assert all("fused" in line.why for line in left)
    with torch.no_grad():  # the fused kernel runs
        assert torch.equal(net(x), original(x))
    assert torch.equal(net(x), original(x))  # it does not


@pytest.mark.parametrize("activation", [F.relu, nn.ReLU()])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_decoder_layer_has_no_fused_kernel(activation, batch_first):
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(
                8, 2, 16, 0.0, activation, batch_first=batch_first
            )

        def forward(self, x):
            return self.layer(x, x)

    net = Decoder().eval()
    x = torch.randn(2, 5, 8)
    assert_converted(net, x, example=x)
    assert_fast_is_slow(net, x)


@pytest.mark.parametrize(
    ("activation", "batch_first"),
    [(F.relu, False), (nn.ReLU(), False), (F.leaky_relu, True), (nn.LeakyReLU(), True)],
)
def test_an_encoder_layer_that_is_never_fused_is_converted(activation, batch_first):
    net = nn.TransformerEncoder(
        encoder_layer(activation, batch_first=batch_first), 2, enable_nested_tensor=False
    ).eval()
    x = torch.randn(2, 5, 8)
    assert_converted(net, x, example=x)
    assert [(unit.num_channels, unit.dim) for unit in units(net)] == [(16, -1)] * 2
    assert_fast_is_slow(net, x)


def assert_fast_is_slow(net, x):
    """Units that have learned are at work with and without gradients."""
    with torch.no_grad():
        before = net(x)
        for unit in units(net):
            unit.a_l.fill_(0.9)
        assert not torch.equal(net(x), before)
        torch.testing.assert_close(net(x), torch.enable_grad()(net)(x))


def test_a_module_that_is_fused_for_quantization_is_left():
    fused = intrinsic.ConvReLU2d(nn.Conv2d(3, 4, 3), nn.ReLU())
    trained = intrinsic_qat.LinearReLU(5, 6, qconfig=default_qat_qconfig)
    net = nn.Sequential(fused, nn.Conv2d(4, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.append(trained)
    ts.convert(net, torch.randn(2, 3, 8, 8))
    assert type(fused[1]) is nn.ReLU
    assert type(trained) is intrinsic_qat.LinearReLU
    assert sizes(net, "2") == [(5, -3)]
    left = ts.summary(net).left
    assert [line.where for line in left] == ["0.1", "5"]
    assert all("quantization" in line.why for line in left)


@pytest.mark.parametrize("kind", [nn.RNN, nn.RNNCell])
def test_the_relu_of_a_recurrent_layer_is_listed(kind):
    class Recurrent(nn.Module):
        def __init__(self, nonlinearity):
            super().__init__()
            self.layer = kind(4, 6, nonlinearity=nonlinearity)

        def forward(self, x):
            out = self.layer(x)
            return out[0] if kind is nn.RNN else out

    x = torch.randn(5, 4)
    net = Recurrent("relu")
    before = net(x)
    with pytest.warns(UserWarning, match="no activation of Recurrent could be converted"):
        ts.convert(net, x)
    assert torch.equal(net(x), before)
    assert [(line.where, line.activation) for line in ts.summary(net).left] == [("layer", "ReLU")]
    with pytest.raises(ValueError, match="nothing to convert"):
        ts.convert(Recurrent("tanh"), x)


class OwnAttention(nn.Module):
    def forward(self, x):
        return x


class OwnEncoderLayer(nn.TransformerEncoderLayer):
    """Never fused: its attention is not torch's."""

    def __init__(self):
        super().__init__(8, 2, 16, 0.0)
        self.self_attn = OwnAttention()

    def forward(self, src):
        return self.linear2(self.activation(self.linear1(self.self_attn(src))))


def test_an_encoder_layer_with_an_attention_of_its_own_is_converted():
    net = nn.Sequential(OwnEncoderLayer(), nn.ReLU())
    assert_converted(net, torch.randn(2, 5, 8))
    assert len(units(net)) == 2


class SharedWithEncoder(nn.Module):
    """One ReLU module, called here and by an encoder layer that may be fused."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()
        self.linear = nn.Linear(8, 8)
        self.layer = encoder_layer(self.relu, batch_first=True)

    def forward(self, x):
        return self.layer(self.relu(self.linear(x)))


def test_a_relu_that_a_fused_layer_shares_is_left_there_alone():
    net = SharedWithEncoder().eval()
    x = torch.randn(2, 5, 8)
    original = copy.deepcopy(net)
    ts.convert(net, x)
    assert sizes(net, "relu") == [(8, -1)]
    assert ["fused" in line.why for line in ts.summary(net).left] == [True]
    with torch.no_grad():
        assert torch.equal(net(x), original(x))
