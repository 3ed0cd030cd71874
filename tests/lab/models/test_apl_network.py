"""The network of the APL paper: sizes, hinges per neuron, any activation."""

import pytest
import torch

from torch_srelu.lab.models.activation_registry import APL
from torch_srelu.lab.models.sequential_networks import NETWORKS


@pytest.mark.parametrize(("name", "hinges"), [("cnn-cifar10", 5), ("cnn-cifar100", 2)])
def test_its_units_are_apl_per_neuron(name, hinges):
    net = NETWORKS[name].build("apl", {"hinges": hinges, "per": "neuron"}).eval()
    shapes = []
    for _, act in net.activations():
        assert isinstance(act, APL)
        shapes.append(tuple(act.a.shape))
    neurons = [(96, 32, 32), (128, 16, 16), (256, 8, 8), (2048, 1, 1), (2048, 1, 1)]
    assert shapes == [(hinges, *shape) for shape in neurons]
    assert net(torch.zeros(1, 3, 32, 32)).shape == (1, NETWORKS[name].classes)
    assert sum(p.numel() for p in net.parameters()) > 5e6  # as the paper says


def test_apl_has_its_own_penalty_and_every_parameter_a_rate():
    net = NETWORKS["cnn-cifar100"].build("apl")
    decays = {rate.parameter: rate.decay for rate in net.rates(0.02)}
    assert len(decays) == len(list(net.parameters()))
    for _, layer in net.layers():
        assert decays[layer.weights.weight] == 0.02
        assert decays[layer.weights.bias] == 0
        assert {decays[p] for p in layer.act.parameters()} <= {1e-3}


def test_other_activations_fit():
    for act in ("relu", "prelu", "srelu"):
        net = NETWORKS["cnn-cifar10"].build(act).eval()
        assert net(torch.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_weights_start_as_published_but_the_first():
    for name, layer in NETWORKS["cnn-cifar10"].build("relu", seed=1).layers():
        expected = 0.1 if name == "conv1" else 0.01
        assert layer.weights.weight.std().item() == pytest.approx(expected, rel=0.05)
