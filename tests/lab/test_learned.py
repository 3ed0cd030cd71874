"""Learned parameters by layer, over channels and seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from specimens import LAYERS, specimen

from torch_srelu.lab.comparison import compare
from torch_srelu.lab.learned import layers
from torch_srelu.lab.statistics import summarise


def test_layers_are_over_channels_and_seeds(tmp_path: Path) -> None:
    runs = [specimen(tmp_path, name, s, [s]) for name in ("relu", "srelu") for s in range(3)]
    (comparison,) = compare(runs)
    relu, srelu = comparison.rivals
    assert layers(relu) == {}
    assert list(layers(srelu)) == ["conv1", "cccp1"]  # not in alphabetical order
    first = layers(srelu)["conv1"]
    by_seed = [r.parameters()["conv1"][-1].double().numpy() for r in srelu.records]
    last = np.concatenate(by_seed, axis=1)
    assert (first.name, first.channels) == ("conv1", LAYERS["conv1"])
    np.testing.assert_allclose(first.mean, last.mean(1))
    np.testing.assert_allclose(first.std, last.std(1))
    assert first.crossed == pytest.approx(np.mean(last[2] > last[0]))
    assert first.seeds[1].mean == pytest.approx(first.mean[1])
    assert first.seeds[1].std == pytest.approx(summarise([p[1].mean() for p in by_seed]).std)
