"""Draws have the frequencies of their weights, whoever shares the batch."""

import torch
from scipy.stats import chisquare

from torch_srelu.lab.runtime.seeds import DropoutStream

CPU = torch.device("cpu")


def stream(rank: int = 0, world: int = 1) -> DropoutStream:
    made = DropoutStream(7, CPU, rank, world)
    made.seek(3)
    return made


def test_frequencies_are_the_weights():
    weights = torch.tensor([0.5, 0.0, 3.0, 1.5, 0.01])
    values = torch.arange(5.0).expand(100_000, 5)
    drawn = stream().draw(values, weights.expand(100_000, 5))
    found = torch.bincount(drawn.long(), minlength=5)
    assert found[1] == 0  # a weight of 0 never wins
    some = weights > 0
    expected = weights[some].double() / weights.double().sum() * len(drawn)
    assert chisquare(found[some].numpy(), expected.numpy()).pvalue > 0.01


def test_processes_that_share_a_batch_draw_as_one():
    values, weights = torch.randn(8, 3, 5), torch.rand(8, 3, 5)
    whole = stream().draw(values, weights)
    parts = [stream(r, 4).draw(values[2 * r :][:2], weights[2 * r :][:2]) for r in range(4)]
    assert torch.equal(torch.cat(parts), whole)


def test_all_zero_is_no_error():
    values = torch.randn(4, 3)
    assert torch.isin(stream().draw(values, torch.zeros(4, 3)), values).all()


def test_the_gradient_is_that_of_the_drawn_value():
    values = torch.randn(50, 3, requires_grad=True)
    drawn = stream().draw(values, values.exp())
    (grad,) = torch.autograd.grad(drawn.sum(), values)
    assert torch.equal(grad.sort(-1).values, torch.tensor([0.0, 0.0, 1.0]).expand(50, 3))
    assert torch.equal((grad * values).sum(-1), drawn)
