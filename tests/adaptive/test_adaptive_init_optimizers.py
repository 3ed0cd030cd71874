"""Adaptive initialisation with optimizers that keep what they remember elsewhere."""

import pytest
import torch

from small_networks import batches, convnet, train, units
from torch_srelu import AdaptiveInit, param_groups
from torch_srelu.optim import srelu_parameters

pytestmark = pytest.mark.usefixtures("one_thread")


def test_state_of_a_wrapped_optimizer_is_cleared():
    """Lookahead would draw t_r back to its old value, which the inner optimizer keeps."""
    lookahead = pytest.importorskip("timm.optim.lookahead")
    model, data = convnet(), batches()
    inside = torch.optim.Adam(param_groups(model, lr=1e-9))
    optimizer = lookahead.Lookahead(inside, alpha=0.5, k=1)
    init = AdaptiveInit(model, optimizer)
    train(model, optimizer, data)
    assert all(p in inside.state for p in model.parameters())
    init.adapt(data)
    ours = set(srelu_parameters(model).values())
    assert {p in inside.state for p in ours} == {False}
    assert all(p in inside.state for p in model.parameters() if p not in ours)
    measured = [unit.t_r.detach().clone() for unit in units(model).values()]
    train(model, optimizer, data)
    for unit, t_r in zip(units(model).values(), measured, strict=True):
        torch.testing.assert_close(unit.t_r.detach(), t_r)
