"""What every callback must do to SReLU in three epochs of which one is frozen."""

import torch


def assert_frozen_then_set_then_learned(seen):
    """``seen``: for each epoch (t_r before the callback, frozen before it, t_r after it)."""
    first, second, third = seen
    assert all(first[1])
    assert all(torch.equal(t, torch.ones_like(t)) for t in second[0])  # did not move while frozen
    assert all((t != 1).all() for t in second[2])  # set from the data
    assert not any(third[1])
    assert all(not torch.equal(a, b) for a, b in zip(second[2], third[0], strict=True))  # learned
