"""Which functions keep the channels: a unit fits every size that the network takes."""

import pytest
import torch
import torch.nn.functional as F
from checking import assert_converted, sizes, units
from torch import nn
from torch.nn.utils import prune

import torch_srelu as ts

pytestmark = pytest.mark.usefixtures("one_thread")

SHARED = (1, 1)
TOKENS = (2, 5, 4), (3, 9, 4)  # two inputs: batch, length, features
NODES = (6, 4), (9, 4)
IMAGES = (2, 3, 10, 10), (1, 3, 13, 14)  # 8 x 8 pixels behind the convolution with 8 channels


@torch.jit.script
def _scripted(x: torch.Tensor) -> torch.Tensor:
    return x + x


class Net(nn.Module):
    """Layers, and an activation of what the test makes of them."""

    def __init__(self, before):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 6)
        self.one = nn.Linear(4, 1)
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.lstm = nn.LSTM(4, 7, batch_first=True)
        self.weight = nn.Parameter(torch.randn(4, 12))
        self.weighted, self.bilinear = nn.Linear(4, 12), nn.Bilinear(4, 4, 9)
        self.register_buffer("graph", torch.rand(5, 5))
        self.before = before

    def forward(self, x):
        return F.relu(self.before(self, x))


def assert_unit(before, shapes, expected):
    net = ts.convert(Net(before).eval(), torch.randn(shapes[0]))
    assert sizes(net, "relu") == [expected]
    for shape in shapes:
        x = torch.randn(shape)
        assert torch.equal(net(x), F.relu(before(net, x)))


# No size of these is a number of channels, whatever the layers before them have.
LOST = {
    "scores by matmul": (TOKENS, lambda m, x: m.q(x) @ m.k(x).mT),
    "scores without a batch": (TOKENS, lambda m, x: m.q(x[0]) @ m.k(x[0]).T),
    "scores by bmm": (TOKENS, lambda m, x: torch.bmm(m.q(x), m.k(x).transpose(1, 2))),
    "scores by baddbmm": (TOKENS, lambda m, x: torch.baddbmm(x.sum(), m.q(x), m.k(x).mT)),
    "scores by einsum": (TOKENS, lambda m, x: torch.einsum("bid,bjd->bij", m.q(x), m.k(x))),
    "scores by linear": (TOKENS, lambda m, x: F.linear(m.q(x[0]), m.k(x[0]))),
    "scores of inputs": (NODES, lambda m, x: x @ x.T),
    "scores of inputs with heads": (TOKENS, lambda m, x: x[:, None] @ x[:, None].mT),
    "scores with positions": (
        ((2, 5, 4), (2, 3, 4)),
        lambda m, x: m.q(x) @ m.weight[:, : x.shape[1]],
    ),
    "distances": (TOKENS, lambda m, x: 1 - torch.cdist(m.q(x), m.k(x))),
    "pairs of nodes": (NODES, lambda m, x: m.one(x) + m.one(x).T),
    "pairs with a mask": (NODES, lambda m, x: x @ m.q(x).T + (x @ x.T > 0)),
    "heads by view": (TOKENS, lambda m, x: m.q(x).view(*x.shape[:2], 2, 2)),
    "heads by unflatten": (TOKENS, lambda m, x: m.q(x).unflatten(-1, (2, 2))),
    "mean over channels": (IMAGES, lambda m, x: m.conv(x).mean(1)),
    "maximum over channels": (IMAGES, lambda m, x: m.conv(x).max(1).values),
    "one channel of an image": (IMAGES, lambda m, x: m.conv(x)[:, 0]),
    "one channel by select": (IMAGES, lambda m, x: m.conv(x).select(-3, 0)),
    "flattened images": (IMAGES, lambda m, x: m.conv(x).flatten(1)),
    "lengths beside channels": (TOKENS, lambda m, x: torch.cat([m.v(x.mean(1)), x.mean(2)], 1)),
    "channels as often as the batch is long": (
        TOKENS,
        lambda m, x: m.v(x[0]).repeat_interleave(x.shape[0], 1),
    ),
    "by a function that is not seen": (IMAGES, lambda m, x: _scripted(m.conv(x))),
    "made in the forward pass": (NODES, lambda m, x: torch.ones(len(x), len(x)) - 2),
}


@pytest.mark.parametrize("name", LOST)
def test_where_channels_are_lost_the_unit_is_shared(name):
    shapes, before = LOST[name]
    assert_unit(before, shapes, SHARED)


# And these keep them.
KEPT = {
    "convolution, with a batch and without": (
        ((2, 3, 10, 10), (3, 10, 10), (3, 12, 12)),
        lambda m, x: m.conv(x),
        (8, -3),
    ),
    "convolution, without a batch and with": (
        ((3, 10, 10), (2, 3, 10, 10)),
        lambda m, x: m.conv(x),
        (8, -3),
    ),
    "residual": (IMAGES, lambda m, x: 0.5 * m.norm(m.conv(x)).add_(1) + m.conv(x), (8, -3)),
    "gate": (IMAGES, lambda m, x: m.conv(x) * m.conv(x).mean((2, 3), keepdim=True), (8, -3)),
    "gate of one channel": (TOKENS, lambda m, x: m.one(x) * m.v(x), (6, -1)),
    "pooling": (IMAGES, lambda m, x: F.max_pool2d(m.conv(x), 2), (8, -3)),
    "global pooling": (
        IMAGES,
        lambda m, x: F.adaptive_avg_pool2d(m.conv(x), 1)[..., 0, 0],
        (8, -1),
    ),
    "global pooling, flattened": (
        IMAGES,
        lambda m, x: F.adaptive_avg_pool2d(m.conv(x), 1).flatten(1),
        (8, -1),
    ),
    "mean over pixels": (IMAGES, lambda m, x: m.conv(x).mean((2, 3)), (8, -1)),
    "tokens of an image": (IMAGES, lambda m, x: m.conv(x).flatten(2).transpose(1, 2), (8, -1)),
    "resized": (IMAGES, lambda m, x: F.interpolate(m.conv(x), scale_factor=2), (8, -3)),
    "padded": (IMAGES, lambda m, x: F.pad(m.conv(x), (1, 1, 1, 1)), (8, -3)),
    "concatenation": (IMAGES, lambda m, x: torch.cat([m.conv(x), m.norm(m.conv(x))], 1), (16, -3)),
    "concatenation with the input": (
        IMAGES,
        lambda m, x: torch.cat([F.pad(m.conv(x), [1] * 4), x], -3),
        (11, -3),
    ),
    "concatenation with a weight": (
        ((12, 4), (12, 4)),
        lambda m, x: torch.concat((m.v(x), m.weight.T), axis=1),
        (10, -1),
    ),
    "concatenation of tokens": (TOKENS, lambda m, x: torch.cat([m.q(x), x], 1), (4, -1)),
    "repeated tokens": (TOKENS, lambda m, x: m.v(x).repeat_interleave(3, 1), (6, -1)),
    "half of the channels": (IMAGES, lambda m, x: m.conv(x).chunk(2, 1)[1], (4, -3)),
    "slice of the channels": (IMAGES, lambda m, x: m.conv(x)[:, 2:5, None], (3, -4)),
    "first token": (TOKENS, lambda m, x: m.v(x)[:, 0], (6, -1)),
    "nodes at the ends of edges": (
        NODES,
        lambda m, x: m.v(x)[torch.tensor([0, 3, 3])],
        (6, -1),
    ),
    "pairs with features": (TOKENS, lambda m, x: m.v(x)[:, :, None] + m.v(x)[:, None], (6, -1)),
    "stacked": (TOKENS, lambda m, x: torch.stack([m.q(x), m.k(x)], 1), (4, -1)),
    **{
        f"{n} stacked": (NODES, lambda m, x, n=n: torch.stack([m.v(x)] * n), (6, -1))
        for n in (3, 4, 5)
    },
    "steps, however many": (
        TOKENS,
        lambda m, x: torch.stack([m.v(token) for token in x.unbind(1)], 1),
        (6, -1),
    ),
    "constant graph on the left": (((5, 4), (3, 5, 4)), lambda m, x: m.graph @ m.v(x), (6, -1)),
    "constant graph on the right": (
        ((2, 3, 7, 7), (1, 3, 9, 7)),
        lambda m, x: m.conv(x) @ m.graph,
        (8, -3),
    ),
    "constant graph by einsum": (
        ((2, 3, 7, 7), (1, 3, 9, 7)),
        lambda m, x: torch.einsum("nctv,vw->nctw", m.conv(x), m.graph),
        (8, -3),
    ),
    "image of a vector": (NODES, lambda m, x: m.weighted(x).view(-1, 3, 2, 2), (3, -3)),
    "bilinear layer": (NODES, lambda m, x: m.bilinear(x, x), (9, -1)),
    "product by tensordot": (TOKENS, lambda m, x: torch.tensordot(x, m.weight, 1), (12, -1)),
    "weight by einsum with dots": (
        TOKENS,
        lambda m, x: torch.einsum("...d,de->...e", x, m.weight),
        (12, -1),
    ),
    "larger of two": (TOKENS, lambda m, x: torch.max(m.q(x), m.k(x)), (4, -1)),
    "steps of a loop": (TOKENS, lambda m, x: m.v(x).unbind(1)[0], (6, -1)),
    "weighted mean of values": (
        TOKENS,
        lambda m, x: torch.softmax(m.q(x) @ m.k(x).mT, -1) @ m.v(x),
        (6, -1),
    ),
    "weighted mean by einsum": (
        TOKENS,
        lambda m, x: torch.einsum("bij, bjd -> bid", m.q(x) @ m.k(x).mT, m.v(x)),
        (6, -1),
    ),
    "weight": (TOKENS, lambda m, x: x @ m.weight, (12, -1)),
    "weight on the left": (TOKENS, lambda m, x: m.weight.T @ x.mT, (12, -2)),
    "computed weight": (TOKENS, lambda m, x: F.linear(x, (m.weight / m.weight.norm()).T), (12, -1)),
    "weight by einsum": (TOKENS, lambda m, x: torch.einsum("bld,de->ble", x, m.weight), (12, -1)),
    "recurrent layer": (TOKENS, lambda m, x: m.lstm(x)[0], (7, -1)),
    "tokens and batch in one": (TOKENS, lambda m, x: m.v(x).flatten(0, 1), (6, -1)),
    "input": (NODES, lambda m, x: x, (4, -1)),
    "scaled input": (NODES, lambda m, x: 2 * x - 1, (4, -1)),
}


@pytest.mark.parametrize("name", KEPT)
def test_channels_are_followed_through(name):
    shapes, before, expected = KEPT[name]
    assert_unit(before, shapes, expected)


@pytest.mark.parametrize(
    "how",
    [
        nn.utils.spectral_norm,
        nn.utils.parametrizations.weight_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    ],
)
def test_weights_that_are_computed_make_channels(how):
    net = ts.convert(nn.Sequential(how(nn.Conv2d(3, 8, 3)), nn.ReLU()), torch.randn(2, 3, 9, 9))
    assert [(unit.num_channels, unit.dim) for unit in units(net)] == [(8, -3)]


class GraphAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x):
        h = self.layer(x)
        scores = F.leaky_relu(self.a(h) + self.b(h).T, 0.2)
        return F.relu(torch.softmax(scores, 1) @ h)


def test_a_graph_network_takes_any_number_of_nodes():
    net = GraphAttention()
    assert_converted(net, torch.randn(6, 5), example=torch.randn(6, 5))
    assert sizes(net, "leaky_relu", "relu") == [SHARED, (8, -1)]
    assert net(torch.randn(9, 5)).shape == (9, 8)


def test_an_image_without_a_batch_has_the_units_of_its_channels():
    net = ts.convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
    (unit,) = units(net)
    with torch.no_grad():
        unit.a_l.uniform_()
    image = torch.randn(3, 10, 10)  # 8 x 8 pixels and 8 channels: no error would tell
    torch.testing.assert_close(net(image), net(image[None])[0])
