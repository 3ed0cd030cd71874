"""Draws have the frequencies of their weights, whoever shares the batch."""

import torch
from scipy.stats import chisquare

from torch_srelu.lab.rivals.sampling import pick
from torch_srelu.lab.seeds import DropoutStream

CPU = torch.device("cpu")


def stream(rank: int = 0, world: int = 1) -> DropoutStream:
    made = DropoutStream(7, CPU, rank, world)
    made.seek(3)
    return made


def test_frequencies_are_the_weights():
    weights = torch.tensor([0.5, 0.0, 3.0, 1.5, 0.01])
    picked = pick(weights.expand(100_000, 5), stream()).flatten()
    found = torch.bincount(picked, minlength=5)
    assert found[1] == 0  # a weight of 0 never wins
    some = weights > 0
    expected = weights[some].double() / weights.double().sum() * len(picked)
    assert chisquare(found[some].numpy(), expected.numpy()).pvalue > 0.01


def test_processes_that_share_a_batch_draw_as_one():
    weights = torch.rand(8, 3, 5)
    whole = pick(weights, stream())
    parts = [pick(weights[2 * r :][:2], stream(r, 4)) for r in range(4)]
    assert torch.equal(torch.cat(parts), whole)


def test_all_zero_is_no_error():
    assert pick(torch.zeros(4, 3), stream()).shape == (4, 1)
