"""GoogLeNet against BVLC's numbers: layers, parameters, shapes, losses."""

import pytest
import torch
import torch.nn.functional as F
from streams import stream
from torch import nn

from torch_srelu.lab.models import googlenet

# Channels of the activations, as published: stem, then the inception blocks.
SITES = {
    "stem": 320,
    "3a": 368,
    "3b": 640,
    "4a": 624,
    "4b": 648,
    "4c": 664,
    "4d": 704,
    "4e": 1024,
    "5a": 1024,
    "5b": 1264,
}


def build(classes: int, act: str, heads: bool) -> googlenet.GoogLeNet:
    return googlenet.GoogLeNetSpec(3, googlenet.SIZE, classes, heads).build(act)


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("heads", "weights", "activations", "channels"),
    [(False, 6_998_552, 57, 7_280), (True, 13_378_280, 61, 9_584)],
)
def test_counts_are_bvlcs(heads, weights, activations, channels):
    net = build(1000, "relu", heads)
    assert count(net) == weights
    assert len(list(net.activations())) == activations
    with_srelu = build(1000, "srelu", heads)
    assert count(with_srelu) - weights == 4 * channels
    assert count(build(1000, "prelu", heads)) - weights == channels


def test_every_block_has_its_published_channels():
    found = dict.fromkeys(SITES, 0)
    for name, act in build(10, "prelu", False).activations():
        assert isinstance(act, nn.PReLU)
        block = "stem" if name.startswith("stem") else name.split(".")[1]
        found[block] += act.num_parameters
    assert found == SITES


@pytest.fixture(scope="module")
def net() -> googlenet.GoogLeNet:
    return googlenet.NETWORKS["googlenet-imagenette"].build("srelu", dropout=stream())


def test_shapes_with_and_without_heads(net):
    shapes: dict[str, tuple[int, ...]] = {}
    hooks = [
        module.register_forward_hook(
            lambda _m, _i, out, name=name: shapes.update({name: tuple(out.shape[1:])})
        )
        for name, module in net.inceptions.items()
    ]
    with torch.no_grad():
        outputs = net.eval().outputs(torch.zeros(1, 3, 224, 224))
        assert net(torch.zeros(1, 3, 224, 224)).shape == (1, 10)
    for hook in hooks:
        hook.remove()
    assert [tuple(logits.shape) for logits in outputs] == 3 * [(1, 10)]
    assert shapes["3a"] == (256, 28, 28)
    assert shapes["4a"] == (512, 14, 14)
    assert shapes["4e"] == (832, 14, 14)
    assert shapes["5b"] == (1024, 7, 7)


def test_every_parameter_gets_a_gradient_and_a_rate(net):
    net.train()
    x, labels = torch.randn(2, 3, 224, 224) * 50, torch.tensor([0, 7])
    outputs = net.outputs(x)
    loss, plain = net.losses(outputs, labels)
    main, first, second = (F.cross_entropy(logits, labels) for logits in outputs)
    torch.testing.assert_close(loss, main + 0.3 * (first + second))
    torch.testing.assert_close(plain, main)
    loss.backward()
    assert all(p.grad is not None for p in net.parameters())
    rates = {rate.parameter: (rate.factor, rate.decay) for rate in net.rates(2e-4)}
    assert len(rates) == len(list(net.parameters()))
    for _, layer in net.layers():
        assert rates[layer.weights.weight] == (1.0, 2e-4)
        assert rates[layer.weights.bias] == (2.0, 0)
        assert {rates[p] for p in layer.act.parameters()} <= {(1.0, 0)}


def test_weights_start_as_bvlcs():
    for name, layer in googlenet.NETWORKS["googlenet-imagenette"].build("relu", seed=1).layers():
        weight, bias = layer.weights.weight, layer.weights.bias
        assert bias is not None
        bound = (3 / weight[0].numel()) ** 0.5
        assert 0.95 * bound < weight.abs().max() <= bound
        assert torch.equal(bias, torch.full_like(bias, 0.0 if "classifier" in name else 0.2))


def test_equal_seeds_give_equal_weights_for_every_activation():
    one, other = (
        googlenet.NETWORKS["googlenet-imagenette"].build(act, seed=4) for act in ("relu", "apl")
    )
    for (_, a), (_, b) in zip(one.layers(), other.layers(), strict=True):
        assert torch.equal(a.weights.weight, b.weights.weight)


@pytest.mark.slow
@torch.no_grad()
def test_a_compiler_sees_the_whole_network(net):
    """All heads and losses are one graph."""
    x, labels = torch.randn(1, 3, 224, 224) * 50, torch.tensor([3])

    def loss(x: torch.Tensor) -> torch.Tensor:
        return net.losses(net.outputs(x), labels)[0]

    net.eval()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), loss(x))
