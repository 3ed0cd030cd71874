"""Every network of the laboratory by name: NIN, the paper's other systems and GoogLeNet."""

from __future__ import annotations

from ..util.choices import check_choice
from . import googlenet, nin_networks
from .network import Plan
from .rivals import (
    apl_network,
    dsn,
    linear,
    maxout_networks,
    stochastic_pooling,
    tree_prior,
)

PLANS: dict[str, Plan] = {
    **nin_networks.PLANS,
    **maxout_networks.PLANS,
    **stochastic_pooling.PLANS,
    **apl_network.PLANS,
    **dsn.PLANS,
    **tree_prior.PLANS,
    **googlenet.PLANS,
    **linear.PLANS,
}


def plan(name: str) -> Plan:
    """The plan of a network by name.

    Example:
        >>> plan("dsn-mnist").classes
        10
    """
    check_choice("net", name, PLANS)
    return PLANS[name]
