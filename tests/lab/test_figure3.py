"""Figure 3 shows the magnitudes it is given."""

import numpy as np

from torch_srelu.lab import googlenet
from torch_srelu.lab.paper import figure3
from torch_srelu.lab.paper.drawing import render


def test_one_point_a_layer_in_order_blocks_named():
    net = googlenet.GoogLeNetPlan(3, googlenet.SIZE, 10, heads=False).build("relu")
    layers = [name for name, _ in net.sites()]
    values = np.random.default_rng(0).uniform(0.1, 300, len(layers))
    figure = figure3.draw(dict(zip(layers, values, strict=True)))
    (axes,) = figure.axes
    line = axes.get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 58))
    np.testing.assert_array_equal(line.get_ydata(), values)
    assert axes.get_yscale() == "log"
    blocks = [label.get_text() for label in axes.get_xticklabels()]
    assert blocks == ["stem", "3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"]
    assert axes.get_xticks()[0] == 2  # the middle of the stem's three layers
    assert render(figure, "png").startswith(b"\x89PNG")
