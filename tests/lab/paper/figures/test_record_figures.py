"""Figures from records: their marks and lines are what the records have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from specimens import record_of

from torch_srelu import srelu
from torch_srelu.lab.models import googlenet
from torch_srelu.lab.paper.figures import record_figures
from torch_srelu.lab.paper.figures.drawing import render
from torch_srelu.lab.paper.figures.figure_list import FROM_RECORDS
from torch_srelu.lab.paper.results import PaperResults
from torch_srelu.lab.paper.row_recipes import SYSTEMS
from torch_srelu.lab.records.run_record import Record


def test_one_point_a_layer_in_order_blocks_named():
    net = googlenet.GoogLeNetSpec(3, googlenet.SIZE, 10, heads=False).build("relu")
    layers = [name for name, _ in net.activations()]
    values = np.random.default_rng(0).uniform(0.1, 300, len(layers))
    figure = record_figures.draw_magnitudes(dict(zip(layers, values, strict=True)))
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
    (axes,) = FROM_RECORDS["figure3"](PaperResults([*found, *others])).axes
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
        FROM_RECORDS["figure3"](PaperResults([]))


def test_lines_are_the_learned_functions(paper_results: PaperResults) -> None:
    found = record_figures.learned_records(paper_results)
    assert list(found) == ["cifar10", "cifar100"]
    panels = record_figures.learned_functions(paper_results).axes
    assert [axes.get_title() for axes in panels[:9]] == [
        "conv1, CIFAR-10, 100 epochs",
        *("cccp1", "cccp2", "conv2", "cccp3", "cccp4", "conv3", "cccp5", "cccp6"),
    ]
    for condition, first in (("cifar10", panels[0]), ("cifar100", panels[9])):
        record = found[condition]
        params = record.parameters()["conv1"][-1].double()
        *_, mean = first.lines
        channels = first.lines[2:-1]  # behind the two axes
        assert len(channels) == params.shape[1] <= record_figures.SHOWN
        for channel, line in enumerate(channels):
            x, y = (torch.tensor(np.asarray(values)) for values in line.get_data())
            one = (p.reshape(1) for p in params[:, channel])
            torch.testing.assert_close(y, srelu(x, *one))
        x = torch.tensor(np.asarray(mean.get_xdata()))[:, None].expand(-1, params.shape[1])
        expected = srelu(x, *params).mean(1)
        torch.testing.assert_close(torch.tensor(np.asarray(mean.get_ydata())), expected)


def test_without_learned_functions_it_says_how_to_get_them() -> None:
    with pytest.raises(ValueError, match="srelu paper run headline"):
        record_figures.learned_functions(PaperResults([]))


def test_figure4_draws_the_recorded_losses(paper_results: PaperResults) -> None:
    panels = FROM_RECORDS["figure4"](paper_results).axes
    for axes, condition in zip(panels, ("cifar10", "cifar100"), strict=True):
        drawn = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}
        assert [label.split(":")[0] for label in drawn] == ["SReLU", "PReLU", "ReLU"]
        entry = paper_results.entry("nin+prelu", condition, "short")
        assert entry is not None
        losses = [[m.train_loss for m in r.metrics] for r in entry.finished]
        np.testing.assert_allclose(list(drawn.values())[1], np.mean(losses, axis=0))
    empty = FROM_RECORDS["figure4"](PaperResults([])).axes[0]
    assert "srelu paper run headline-cifar10" in empty.texts[0].get_text()
