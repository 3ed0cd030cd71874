"""The picture of what SReLU learned: its lines are the functions of the recorded parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torch_srelu import srelu
from torch_srelu.lab.paper.figures import learned_functions
from torch_srelu.lab.paper.standing import Standing


def test_lines_are_the_learned_functions(standing: Standing) -> None:
    found = learned_functions.recorded(standing)
    assert list(found) == ["cifar10", "cifar100"]
    panels = learned_functions.draw(standing).axes
    assert [axes.get_title() for axes in panels[:9]] == [
        "conv1, CIFAR-10, 100 epochs",
        *("cccp1", "cccp2", "conv2", "cccp3", "cccp4", "conv3", "cccp5", "cccp6"),
    ]
    for condition, first in (("cifar10", panels[0]), ("cifar100", panels[9])):
        record = found[condition]
        params = record.parameters()["conv1"][-1].double()
        *_, mean = first.lines
        channels = first.lines[2:-1]  # behind the two axes
        assert len(channels) == params.shape[1] <= learned_functions.SHOWN
        for channel, line in enumerate(channels):
            x, y = (torch.tensor(np.asarray(values)) for values in line.get_data())
            one = (p.reshape(1) for p in params[:, channel])
            torch.testing.assert_close(y, srelu(x, *one))
        x = torch.tensor(np.asarray(mean.get_xdata()))[:, None].expand(-1, params.shape[1])
        expected = srelu(x, *params).mean(1)
        torch.testing.assert_close(torch.tensor(np.asarray(mean.get_ydata())), expected)


def test_without_records_it_says_how_to_get_them() -> None:
    with pytest.raises(ValueError, match="srelu paper run headline"):
        learned_functions.draw(Standing([]))
