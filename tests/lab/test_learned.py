"""Layers in the order of their network."""

from torch_srelu.lab import learned
from torch_srelu.lab.recipes import recipe
from torch_srelu.lab.rivals.recipes import rival


def test_layers_come_in_the_order_of_any_network() -> None:
    run = recipe("digits", "srelu", seed=1)
    assert learned.in_order(run, ["cccp1", "unknown", "conv1"]) == ["conv1", "cccp1", "unknown"]
    run = rival("googlenet", "imagenette", 1, activation="srelu")
    names = ["inceptions.3a.one", "stem.conv2", "stem.conv1"]
    assert learned.in_order(run, names) == names[::-1]
