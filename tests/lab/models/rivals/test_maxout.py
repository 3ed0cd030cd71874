"""Maxout and probabilistic maxout against their definitions."""

import math

import pytest
import torch
from scipy.stats import chisquare
from streams import stream

from torch_srelu.lab.models.rivals.maxout import Maxout, ProbMaxout


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
