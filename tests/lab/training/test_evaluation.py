"""Top-k errors against sorting, and sizes of weights against their norms."""

import numpy as np
import torch

from torch_srelu.lab.models import network_registry
from torch_srelu.lab.paper.experiments import required_runs, select_experiments
from torch_srelu.lab.training.evaluation import layer_weights, top_errors


def test_errors_are_those_of_a_sorted_list():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 12)), rng.integers(0, 12, 200)
    order = np.argsort(-logits, axis=1)
    expected = {
        k: np.mean([y not in row[:k] for row, y in zip(order, labels, strict=True)])
        for k in (1, 5, 12)
    }
    found = top_errors(torch.from_numpy(logits), torch.from_numpy(labels), ks=(1, 5, 12))
    assert found == expected
    assert found[12] == 0


def test_equal_logits_and_nan_find_nothing():
    labels = torch.tensor([0, 3])
    assert top_errors(torch.zeros(2, 10), labels) == {1: 1.0, 5: 1.0}
    assert top_errors(torch.full((2, 10), float("nan")), labels) == {1: 1.0, 5: 1.0}


def test_every_network_has_the_size_of_its_weights() -> None:
    for run in {run.net: run for run in required_runs(select_experiments(), {})}.values():
        net = network_registry.network_spec(run.net).build(run.activation, run.options)
        layers = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
        found = layer_weights(net)
        sizes = [layer.weight.norm() / layer.weight.numel() ** 0.5 for layer in layers]
        torch.testing.assert_close(torch.stack(list(found.values())), torch.stack(sizes))
        if run.net.startswith("nin"):
            assert list(found) == [name for name, _ in net.activations()]
