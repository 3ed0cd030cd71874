"""Checks of a run against the registered networks and activations."""

from __future__ import annotations

from dataclasses import replace

from ..config.run import Run, as_float
from ..data.datasets import dataset
from ..models.activation_registry import activation
from ..models.network import NetworkSpec
from ..models.network_registry import NETWORKS, network_spec


def checked(run: Run) -> Run:
    """The run, with whole numbers as floats where its activation's options are floats.

    Raises ValueError if its network or activation does not exist, or if they do not fit each other,
    the data set or the other fields.

    Example:
        >>> from torch_srelu.lab.config.recipes import recipe
        >>> checked(recipe("digits", "lrelu", seed=1, options={"slope": 1})).options
        {'slope': 1.0}
    """
    data, net = dataset(run.dataset), network_spec(run.net)
    act = activation(run.activation)
    act.check(run.options)
    net.supported_activation(run.activation)

    def fits(spec: NetworkSpec) -> bool:
        return (spec.channels, spec.size, spec.size, spec.classes) == (*data.shape, data.classes)

    if not fits(net):
        fitting = [name for name, spec in NETWORKS.items() if fits(spec)]
        raise ValueError(
            f"net {run.net} does not fit {run.dataset} (images {data.shape}, {data.classes} "
            f"classes): choose {' or '.join(fitting)}"
        )
    if run.freeze and not act.adapts:
        raise ValueError(
            f"{run.activation} has nothing to freeze: freeze must be 0, got {run.freeze}"
        )
    if run.fixed and not act.is_srelu:
        raise ValueError(f"fixed names SReLU parameters, but the activation is {run.activation}")
    options = {
        name: as_float(value) if isinstance(act.options[name], float) else value
        for name, value in run.options.items()
    }
    return replace(run, options=options)
