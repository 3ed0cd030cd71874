"""Maxout and probabilistic maxout against their definitions, and the published networks."""

import math

import pytest
import torch
from scipy.stats import chisquare

from torch_srelu.lab.rivals.maxout import PLANS, Maxout, ProbMaxout, build
from torch_srelu.lab.seeds import DropoutStream

CPU = torch.device("cpu")


def stream(step: int = 0) -> DropoutStream:
    made = DropoutStream(1, CPU)
    made.seek(step)
    return made


@pytest.mark.parametrize("shape", [(5, 12), (2, 12, 3, 4)])
@pytest.mark.parametrize("pieces", [2, 3, 4])
def test_maxout_is_the_largest_piece(shape, pieces):
    torch.manual_seed(0)
    z = torch.randn(shape)
    units = shape[1] // pieces
    h = Maxout(pieces)(z)
    assert h.shape == (shape[0], units, *shape[2:])
    for u in range(units):
        for place in torch.cartesian_prod(*(torch.arange(n) for n in (shape[0], *shape[2:]))):
            n, *where = torch.atleast_1d(place).tolist()
            expected = max(z[(n, i * units + u, *where)].item() for i in range(pieces))
            assert h[(n, u, *where)].item() == expected


def test_only_the_largest_piece_learns():
    z = torch.tensor([[1.0, -2.0, 0.5, 3.0]], requires_grad=True)
    Maxout(2)(z).sum().backward()
    assert z.grad is not None
    assert z.grad.tolist() == [[1, 0, 0, 1]]


def test_pieces_must_divide_the_channels():
    for unit in (Maxout(5), ProbMaxout(5, 1.0, stream())):
        with pytest.raises(ValueError, match="multiple of 5 channels, got 12"):
            unit(torch.zeros(1, 12))


@pytest.mark.parametrize("sharpness", [0.3, 2.0])
def test_probout_draws_as_softmax_says(sharpness):
    z = torch.tensor([0.2, -1.0, 0.9])
    drawn = ProbMaxout(3, sharpness, stream())(z.expand(60_000, 3)).flatten()
    found = [(drawn == value).sum().item() for value in z]
    assert sum(found) == len(drawn)  # an outcome is one of the pieces
    weights = [math.exp(sharpness * value) for value in z.tolist()]
    expected = [len(drawn) * w / sum(weights) for w in weights]
    assert chisquare(found, expected).pvalue > 0.01


def test_probouts_drawn_piece_learns():
    z = torch.randn(4, 6, 2, 2, requires_grad=True)
    h = ProbMaxout(3, 1.0, stream())(z)
    h.sum().backward()
    assert z.grad is not None
    pieces, grads = z.detach().unflatten(1, (3, 2)), z.grad.unflatten(1, (3, 2))
    assert torch.equal(grads.sum(1), torch.ones(4, 2, 2, 2))
    assert torch.equal((grads * pieces).sum(1), h)


def test_probout_at_test_is_the_expectation():
    z = torch.randn(3, 6, 2, 2, dtype=torch.float64)
    h = ProbMaxout(2, 1.7).eval()(z)
    first, second = z.numpy()[:, :3], z.numpy()[:, 3:]
    p = 1 / (1 + torch.exp(1.7 * torch.from_numpy(second - first)))
    torch.testing.assert_close(h, p * z[:, :3] + (1 - p) * z[:, 3:])


def test_a_sharp_probout_is_maxout():
    z = torch.randn(50, 12)
    unit = ProbMaxout(3, 1e6, stream())
    assert torch.equal(unit(z), Maxout(3)(z))
    torch.testing.assert_close(unit.eval()(z), Maxout(3)(z))


def test_low_precision_keeps_its_type():
    z = torch.randn(4, 6, 2, 2).bfloat16()
    unit = ProbMaxout(2, 1.0, stream())
    assert unit(z).dtype == unit.eval()(z).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "sizes", "parameters"),
    [
        ("maxout-mnist", [21, 10, 9, 4, 6, 3], 418_714),  # as published
        ("maxout-cifar10", [33, 16, 15, 7, 9, 5], None),
        ("maxout-cifar100", [33, 16, 15, 7, 9, 5], None),
    ],
)
def test_networks_have_the_published_sizes(name, sizes, parameters):
    plan = PLANS[name]
    net, seen = build(plan, "maxout").eval(), []
    for module in net.children():
        module.register_forward_hook(lambda _m, _i, out: seen.append(out.shape[-1]))
    logits = net(torch.zeros(1, plan.channels, plan.size, plan.size))
    assert logits.shape == (1, plan.classes)
    assert [s for s, before in zip(seen[1:], seen, strict=False) if s != before][:6] == sizes
    if parameters:
        assert sum(p.numel() for p in net.parameters()) == parameters
    else:  # "> 5M" in the paper
        assert sum(p.numel() for p in net.parameters()) > 5e6


def test_the_constraint_holds_after_a_step():
    net = build(PLANS["maxout-mnist"], "probout", seed=3, dropout=stream())
    with torch.no_grad():
        for p in net.parameters():
            p.normal_()
    net.constrain()
    limits = {"h0": 0.9, "h1": 1.9365, "h2": 1.9365, "y": 1.9365}
    for name, layer in net.layers():
        norms = layer.linear.weight.flatten(1).norm(dim=1)
        torch.testing.assert_close(norms, torch.full_like(norms, limits[name]))


def test_convolutions_for_cifar_learn_slowly():
    net = build(PLANS["maxout-cifar10"], "maxout")
    factors = {rate.parameter: rate.factor for rate in net.rates(0.0)}
    assert len(factors) == len(list(net.parameters()))
    for name, layer in net.layers():
        expected = 0.05 if name in ("h0", "h1", "h2") else 1.0
        assert factors[layer.linear.weight] == factors[layer.linear.bias] == expected


def test_equal_seeds_give_equal_weights():
    one, other = (build(PLANS["maxout-mnist"], unit, seed=5) for unit in ("maxout", "probout"))
    assert all(map(torch.equal, one.parameters(), other.parameters()))
    weight = next(one.parameters())
    assert weight.abs().max() <= 0.005
    assert weight.std().item() == pytest.approx(0.005 / math.sqrt(3), rel=0.05)


def test_an_unknown_unit_lists_the_choices():
    with pytest.raises(ValueError, match="did you mean 'maxout'"):
        build(PLANS["maxout-mnist"], "maxuot")
