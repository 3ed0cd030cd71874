"""The order of layers from the input of a network to its output, for records that lack it."""

from __future__ import annotations

_NIN = ["conv1", "cccp1", "cccp2", "conv2", "cccp3", "cccp4", "conv3", "cccp5", "cccp6"]
_BRANCHES = ["one", "three_reduce", "three", "five_reduce", "five", "pool_project"]
_BLOCKS = ["3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"]
_GOOGLENET = [
    *("stem.conv1", "stem.conv2_reduce", "stem.conv2"),
    *(f"inceptions.{block}.{branch}" for block in _BLOCKS for branch in _BRANCHES),
    *("heads.4a.conv", "heads.4a.fc", "heads.4d.conv", "heads.4d.fc"),
]
# By the beginning of the network's name, the first that fits. The layers of all other networks are
# in the order of their names.
_ORDERS = {
    "nin-digits": ["conv1", "cccp1", "conv2", "cccp2", "conv3", "cccp3"],
    "nin-": _NIN,
    "dsn-": _NIN,
    "googlenet-": _GOOGLENET,
}


def default_order(net: str) -> tuple[str, ...]:
    """The layers of a network that existed before records stored their order."""
    return tuple(next((order for start, order in _ORDERS.items() if net.startswith(start)), ()))
