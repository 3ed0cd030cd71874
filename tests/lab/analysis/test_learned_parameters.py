"""Layers in the order of their network, and the shapes that their channels learned."""

import numpy as np

from torch_srelu.lab.analysis import learned_parameters
from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.rival_recipes import rival


def test_layers_come_in_the_order_of_any_network() -> None:
    run = recipe("digits", "srelu", seed=1)
    assert learned_parameters.in_order(run, ["cccp1", "unknown", "conv1"]) == [
        "conv1",
        "cccp1",
        "unknown",
    ]
    run = rival("googlenet", "imagenette", 1, activation="srelu")
    names = ["inceptions.3a.one", "stem.conv2", "stem.conv1"]
    assert learned_parameters.in_order(run, names) == names[::-1]


def test_shares_of_channels_by_their_shape() -> None:
    t_r, a_r = [1.0, 1.0, 1.0, 1.0], [0.5, 1.0, 2.0, -0.1]
    t_l, a_l = [-1.0, -1.0, 2.0, -1.0], [0.2, 0.2, -0.3, 0.0]
    layer = learned_parameters._layer("conv1", np.array([[t_r, a_r, t_l, a_l]]))
    shares = (layer.crossed, layer.slower, layer.rising, layer.s_shaped)
    assert shares == (0.25, 0.5, 0.25, 0.25)
