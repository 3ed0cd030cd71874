"""Weights into one output stay within their norm, and keep their direction."""

import pytest
import torch

from torch_srelu.lab.models.rivals.max_norm import limit_norm


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3, 3)])
def test_long_ones_are_shortened_and_short_ones_left(shape):
    torch.manual_seed(0)
    scale = torch.linspace(0, 2, 6).reshape(-1, *[1] * (len(shape) - 1))  # the first is 0
    weight = torch.randn(shape) * scale
    before = weight.clone()
    limit_norm(weight, 1.5)
    for row, old in zip(weight, before, strict=True):
        norm = old.double().norm()
        expected = old.double() * min(1, 1.5 / norm) if norm else old.double()
        torch.testing.assert_close(row.double(), expected, rtol=1e-6, atol=1e-7)
    short = before.flatten(1).norm(dim=1) <= 1.5
    assert 0 < short.sum() < 6
    assert torch.equal(weight[short], before[short])
