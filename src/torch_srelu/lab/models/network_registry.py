"""Every network of the laboratory by name: NIN, the paper's other systems and GoogLeNet."""

from __future__ import annotations

from ..util.choices import check_choice
from . import googlenet, nin_networks
from .network import NetworkSpec
from .rivals import apl_network, dsn, linear, maxout_networks, stochastic_pooling, tree_prior

_OTHERS = (maxout_networks, stochastic_pooling, apl_network, dsn, tree_prior, googlenet, linear)
NETWORKS: dict[str, NetworkSpec] = {**nin_networks.NETWORKS}
for module in _OTHERS:
    NETWORKS |= module.NETWORKS


def network_spec(name: str) -> NetworkSpec:
    """The description of a network by name; its ``build`` builds it.

    Example:
        >>> network_spec("dsn-mnist").classes
        10
    """
    check_choice("net", name, NETWORKS)
    return NETWORKS[name]
