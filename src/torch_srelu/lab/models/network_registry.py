"""Every network of the laboratory by name: NIN, the paper's other systems and GoogLeNet."""

from __future__ import annotations

from ..util.choices import check_choice
from . import googlenet, sequential_networks
from .network import NetworkSpec
from .rivals import dsn, stochastic_pooling, tree_prior

NETWORKS: dict[str, NetworkSpec] = {**sequential_networks.NETWORKS}
for module in (stochastic_pooling, dsn, tree_prior, googlenet):
    NETWORKS |= module.NETWORKS


def network_spec(name: str) -> NetworkSpec:
    """The description of a network by name; its ``build`` builds it.

    Example:
        >>> network_spec("dsn-mnist").classes
        10
    """
    check_choice("net", name, NETWORKS)
    return NETWORKS[name]
