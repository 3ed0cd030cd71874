"""Every network of the laboratory by name: NIN, the paper's other systems and GoogLeNet."""

from __future__ import annotations

from ..util.choices import check_choice
from . import googlenet, nin_networks
from .network import NetworkSpec
from .rivals import (
    apl_network,
    dsn,
    linear,
    maxout_networks,
    stochastic_pooling,
    tree_prior,
)

NETWORKS: dict[str, NetworkSpec] = {
    **nin_networks.NETWORKS,
    **maxout_networks.NETWORKS,
    **stochastic_pooling.NETWORKS,
    **apl_network.NETWORKS,
    **dsn.NETWORKS,
    **tree_prior.NETWORKS,
    **googlenet.NETWORKS,
    **linear.NETWORKS,
}


def network_spec(name: str) -> NetworkSpec:
    """The description of a network by name; its ``build`` builds it.

    Example:
        >>> network_spec("dsn-mnist").classes
        10
    """
    check_choice("net", name, NETWORKS)
    return NETWORKS[name]
