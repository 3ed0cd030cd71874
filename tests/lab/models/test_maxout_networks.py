"""The published networks of maxout units."""

import math

import pytest
import torch

from torch_srelu.lab.models.rivals.maxout import ProbMaxout
from torch_srelu.lab.models.sequential_networks import NETWORKS


@pytest.mark.parametrize(
    ("name", "sizes", "parameters"),
    [
        ("maxout-mnist", [21, 10, 9, 4, 6, 3], 418_714),  # as published
        ("maxout-cifar10", [33, 16, 15, 7, 9, 5], None),
        ("maxout-cifar100", [33, 16, 15, 7, 9, 5], None),
    ],
)
def test_networks_have_the_published_sizes(name, sizes, parameters):
    spec = NETWORKS[name]
    net, seen = spec.build("maxout").eval(), []
    for module in net.children():
        module.register_forward_hook(lambda _m, _i, out: seen.append(out.shape[-1]))
    logits = net(torch.zeros(1, spec.channels, spec.size, spec.size))
    assert logits.shape == (1, spec.classes)
    assert [s for s, before in zip(seen[1:], seen, strict=False) if s != before][:6] == sizes
    if parameters:
        assert sum(p.numel() for p in net.parameters()) == parameters
    else:  # "> 5M" in the paper
        assert sum(p.numel() for p in net.parameters()) > 5e6


def test_the_constraint_holds_after_a_step():
    net = NETWORKS["maxout-mnist"].build("probout", seed=3)
    with torch.no_grad():
        for p in net.parameters():
            p.normal_()
    net.constrain()
    limits = {"h0": 0.9, "h1": 1.9365, "h2": 1.9365, "y": 1.9365}
    for name, layer in net.layers():
        norms = layer.weights.weight.flatten(1).norm(dim=1)
        torch.testing.assert_close(norms, torch.full_like(norms, limits[name]))


def test_convolutions_for_cifar_learn_slowly():
    net = NETWORKS["maxout-cifar10"].build("maxout")
    factors = {rate.parameter: rate.factor for rate in net.rates(0.0)}
    assert len(factors) == len(list(net.parameters()))
    for name, layer in net.layers():
        expected = 0.05 if name in ("h0", "h1", "h2") else 1.0
        assert factors[layer.weights.weight] == factors[layer.weights.bias] == expected


def test_equal_seeds_give_equal_weights():
    one, other = (NETWORKS["maxout-mnist"].build(unit, seed=5) for unit in ("maxout", "probout"))
    assert all(map(torch.equal, one.parameters(), other.parameters()))
    weight = next(one.parameters())
    assert weight.abs().max() <= 0.005
    assert weight.std().item() == pytest.approx(0.005 / math.sqrt(3), rel=0.05)


def test_probout_prefers_large_pieces_more_in_later_layers():
    net = NETWORKS["maxout-cifar10"].build("probout", {"sharpness": 0.5})
    units = [act for _, act in net.activations()]
    assert [act.sharpness for act in units if isinstance(act, ProbMaxout)] == [0.5, 1.0, 1.5, 2.0]
    assert [act.pieces for act in units if isinstance(act, ProbMaxout)] == [2, 2, 2, 5]


def test_other_activations_are_refused_and_maxout_elsewhere():
    with pytest.raises(ValueError, match="units have several pieces, which maxout or probout join"):
        NETWORKS["maxout-mnist"].build("relu")
    with pytest.raises(ValueError, match="cannot have the activation maxout: maxout joins"):
        NETWORKS["nin-mnist"].build("maxout")
