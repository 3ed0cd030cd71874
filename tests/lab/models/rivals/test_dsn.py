"""Deeply supervised nets: companion heads in training, plain NIN at test."""

import pytest
import torch
import torch.nn.functional as F
from streams import stream
from torch import nn

from torch_srelu.lab.models import nin_networks
from torch_srelu.lab.models.rivals.dsn import COMPANIONS_UNTIL, PLANS, SUPERVISED, squared_hinge


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "mnist"])
def test_what_is_tested_is_nin(data):
    net, nin = (
        PLANS[f"dsn-{data}"].build("relu", seed=2),
        nin_networks.build(f"nin-{data}", "relu", seed=2),
    )
    assert count(net.trunk) == count(nin)
    assert all(map(torch.equal, net.trunk.parameters(), nin.parameters()))  # starts as NIN
    assert len(list(net.sites())) == 8  # no activation after the last layer
    assert sum(isinstance(m, nn.MaxPool2d) for m in net.trunk.children()) == 2
    assert not any(isinstance(m, nn.AvgPool2d) for m in net.trunk.children())


def test_heads_change_nothing_at_test():
    plan = PLANS["dsn-mnist"]
    net = plan.build("relu").eval()
    x = torch.rand(2, 1, 28, 28)
    logits = net(x)
    assert torch.equal(logits, nin_networks.build(plan, "relu").eval()(x))
    with torch.no_grad():
        for p in net.heads.parameters():
            p.fill_(float("nan"))
    assert torch.equal(net(x), logits)


def test_heads_see_the_inputs_of_activations():
    net = PLANS["dsn-mnist"].build("relu", dropout=stream())
    seen: dict[str, torch.Tensor] = {}
    for name, act in net.sites():
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


def test_heads_rest_after_their_phase():
    net = PLANS["dsn-mnist"].build("relu", dropout=stream())
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
    net = PLANS["dsn-cifar10"].build("relu")
    rates = {rate.parameter: (rate.factor, rate.decay) for rate in net.rates(5e-4)}
    assert len(rates) == len(list(net.parameters()))
    for name, block in net.trunk.blocks():
        weight, bias = (0.1, 0.2) if name == "cccp6" else (1.0, 2.0)
        assert block.conv.bias is not None
        assert rates[block.conv.weight] == (weight, 5e-4)
        assert rates[block.conv.bias] == (bias, 0)
    for head in net.heads.values():
        assert isinstance(head, nn.Linear)
        assert rates[head.weight] == (0.001, 5e-4)
        assert rates[head.bias] == (0.002, 0)


def test_heads_start_as_caffe_started_dense_layers():
    for head in PLANS["dsn-cifar10"].build("relu", seed=1).heads.values():
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
    net = PLANS["dsn-cifar100"].build("relu")
    outputs, labels = (torch.randn(2, 100), torch.randn(2, 100)), torch.tensor([3, 50])
    expected = sum(F.cross_entropy(logits, labels) for logits in outputs)
    torch.testing.assert_close(net.losses(outputs, labels)[0], expected)
