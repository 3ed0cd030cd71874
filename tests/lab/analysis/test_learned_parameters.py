"""The shapes that the channels of a layer learned."""

import numpy as np

from torch_srelu.lab.analysis import learned_parameters


def test_shares_of_channels_by_their_shape() -> None:
    t_r, a_r = [1.0, 1.0, 1.0, 1.0], [0.5, 1.0, 2.0, -0.1]
    t_l, a_l = [-1.0, -1.0, 2.0, -1.0], [0.2, 0.2, -0.3, 0.0]
    layer = learned_parameters._layer("conv1", np.array([[t_r, a_r, t_l, a_l]]))
    shares = (layer.crossed, layer.slower, layer.rising, layer.s_shaped)
    assert shares == (0.25, 0.5, 0.25, 0.25)
