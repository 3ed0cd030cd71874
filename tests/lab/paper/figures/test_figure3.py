"""Figure 3 shows the magnitudes it is given."""

from pathlib import Path

import numpy as np
import pytest
from specimens import record_of

from torch_srelu.lab.models import googlenet
from torch_srelu.lab.paper.figures import figure3
from torch_srelu.lab.paper.figures.drawing import render
from torch_srelu.lab.paper.figures.figure_list import FROM_RECORDS
from torch_srelu.lab.paper.standing import Standing
from torch_srelu.lab.paper.systems import SYSTEMS
from torch_srelu.lab.records.run_record import Record


def test_one_point_a_layer_in_order_blocks_named():
    net = googlenet.GoogLeNetSpec(3, googlenet.SIZE, 10, heads=False).build("relu")
    layers = [name for name, _ in net.activations()]
    values = np.random.default_rng(0).uniform(0.1, 300, len(layers))
    figure = figure3.draw(dict(zip(layers, values, strict=True)))
    (axes,) = figure.axes
    line = axes.get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 58))
    np.testing.assert_array_equal(line.get_ydata(), values)
    assert axes.get_yscale() == "log"
    blocks = [label.get_text() for label in axes.get_xticklabels()]
    assert blocks == ["stem", "3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"]
    assert axes.get_xticks()[0] == 2  # the middle of the stem's three layers
    assert render(figure, "png").startswith(b"\x89PNG")


def test_it_is_drawn_from_all_finished_seeds_of_googlenet(tmp_path: Path):
    names = ["stem.conv2", "stem.conv1", "inceptions.3a.one"]  # in any order
    layers = dict.fromkeys(names, 2)

    def record(row: str, seed: int, status: str = "finished") -> Record:
        run = SYSTEMS[row]("imagenet", seed)
        return record_of(tmp_path, run, status=status, layers=layers, kept=1)

    found = [record("googlenet+srelu", 1)]
    others = [record("googlenet+srelu", 2, "diverged"), record("googlenet", 1)]
    (axes,) = FROM_RECORDS["figure3"](Standing([*found, *others])).axes
    inputs = [record.inputs() for record in found]
    expected = [
        np.mean([i.magnitude[name][-1].item() for i in inputs if i])
        for name in ("stem.conv1", "stem.conv2", "inceptions.3a.one")
    ]
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), expected)


def test_without_a_record_it_says_so():
    with pytest.raises(
        ValueError, match="has no finished record yet: `srelu paper run googlenet-imagenette`"
    ):
        FROM_RECORDS["figure3"](Standing([]))
