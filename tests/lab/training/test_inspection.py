"""What is read off a network between two epochs."""

import torch

from torch_srelu.lab.models import network_registry
from torch_srelu.lab.paper.experiments import required_runs, select_experiments
from torch_srelu.lab.training import inspection


def test_every_network_has_the_size_of_its_weights() -> None:
    for run in {run.net: run for run in required_runs(select_experiments(), {})}.values():
        net = network_registry.network_spec(run.net).build(run.activation, run.options)
        layers = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
        found = inspection.weights(net)
        sizes = [layer.weight.norm() / layer.weight.numel() ** 0.5 for layer in layers]
        torch.testing.assert_close(torch.stack(list(found.values())), torch.stack(sizes))
        if run.net.startswith("nin"):
            assert list(found) == [name for name, _ in net.activations()]
