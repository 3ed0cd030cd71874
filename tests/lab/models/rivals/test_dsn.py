"""Deeply supervised nets: companion heads in training, plain NIN at test."""

import pytest
import torch
import torch.nn.functional as F
from streams import stream
from torch import nn

from torch_srelu.lab.models import sequential_networks
from torch_srelu.lab.models.activation_registry import activation
from torch_srelu.lab.models.layers import LayerBuilder
from torch_srelu.lab.models.rivals.dsn import COMPANIONS_UNTIL, NETWORKS, SUPERVISED, squared_hinge


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "mnist"])
def test_what_is_tested_is_nin(data):
    net, nin = (
        NETWORKS[f"dsn-{data}"].build("relu", seed=2),
        sequential_networks.NETWORKS[f"nin-{data}"].build("relu", seed=2),
    )
    assert count(net.trunk) == count(nin)
    assert all(map(torch.equal, net.trunk.parameters(), nin.parameters()))  # starts as NIN
    assert len(list(net.activations())) == 8  # no activation after the last layer
    assert sum(isinstance(m, nn.MaxPool2d) for m in net.trunk.children()) == 2
    assert not any(isinstance(m, nn.AvgPool2d) for m in net.trunk.children())


def test_heads_change_nothing_at_test():
    spec = NETWORKS["dsn-mnist"]
    net = spec.build("relu").eval()
    x = torch.rand(2, 1, 28, 28)
    logits = net(x)
    nin = spec.build_layers(LayerBuilder(activation("relu"), {}, 0, None))
    assert torch.equal(logits, nin.eval()(x))
    with torch.no_grad():
        for p in net.heads.parameters():
            p.fill_(float("nan"))
    assert torch.equal(net(x), logits)


def test_heads_see_the_inputs_of_activations():
    net = NETWORKS["dsn-mnist"].build("relu", dropout=stream())
    seen: dict[str, torch.Tensor] = {}
    for name, act in net.activations():
        act.register_forward_pre_hook(lambda _m, args, name=name: seen.update({name: args[0]}))
    x, labels = torch.rand(3, 1, 28, 28), torch.tensor([1, 5, 9])
    outputs = net.outputs(x)
    assert len(outputs) == 1 + len(SUPERVISED)
    for name, logits in zip(SUPERVISED, outputs[1:], strict=True):
        assert (seen[name] < 0).any()
        head = net.heads[name]
        assert isinstance(head, nn.Linear)
        expected = F.linear(seen[name].flatten(1), head.weight, head.bias)
        torch.testing.assert_close(logits, expected)
    total = sum(squared_hinge(logits, labels) for logits in outputs)
    loss, plain = net.losses(outputs, labels)
    torch.testing.assert_close(loss, total)
    torch.testing.assert_close(plain, F.cross_entropy(outputs[0], labels))


def test_heads_are_unused_after_their_phase():
    net = NETWORKS["dsn-mnist"].build("relu", dropout=stream())
    x, labels = torch.rand(2, 1, 28, 28), torch.tensor([1, 5])
    assert net.begin(0.0) is False
    assert net.begin(COMPANIONS_UNTIL) is True  # a captured step is out of date
    assert net.begin(1.0) is False
    outputs = net.outputs(x)
    assert len(outputs) == 1
    net.losses(outputs, labels)[0].backward()
    assert all(p.grad is None for p in net.heads.parameters())
    assert all(p.grad is not None for p in net.trunk.parameters())
    assert net.begin(0.0) is True  # a run that starts again


def test_every_parameter_learns_at_its_published_rate():
    net = NETWORKS["dsn-cifar10"].build("relu")
    rates = {rate.parameter: (rate.factor, rate.decay) for rate in net.rates(5e-4)}
    assert len(rates) == len(list(net.parameters()))
    for name, layer in net.trunk.layers():
        weight, bias = (0.1, 0.2) if name == "cccp6" else (1.0, 2.0)
        assert layer.weights.bias is not None
        assert rates[layer.weights.weight] == (weight, 5e-4)
        assert rates[layer.weights.bias] == (bias, 0)
    for head in net.heads.values():
        assert isinstance(head, nn.Linear)
        assert rates[head.weight] == (0.001, 5e-4)
        assert rates[head.bias] == (0.002, 0)


def test_heads_are_initialized_as_caffe_did_dense_layers():
    for head in NETWORKS["dsn-cifar10"].build("relu", seed=1).heads.values():
        assert isinstance(head, nn.Linear)
        bound = (3 / head.weight.numel()) ** 0.5
        assert 0.99 * bound < head.weight.abs().max() <= bound
        assert torch.equal(head.bias, torch.zeros(10))


def test_squared_hinge_is_one_against_all():
    logits = torch.randn(4, 3, dtype=torch.float64)
    labels = torch.tensor([0, 2, 1, 1])
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        for c, f in enumerate(row):
            total += max(0.0, 1 - f if c == label else 1 + f) ** 2
    assert squared_hinge(logits, labels).item() == pytest.approx(total / 4)


def test_cifar100_has_softmax_losses():
    net = NETWORKS["dsn-cifar100"].build("relu")
    outputs, labels = (torch.randn(2, 100), torch.randn(2, 100)), torch.tensor([3, 50])
    expected = sum(F.cross_entropy(logits, labels) for logits in outputs)
    torch.testing.assert_close(net.losses(outputs, labels)[0], expected)
