"""The picture of the whole reproduction: its marks are what the records say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from reproduction import ended
from scipy import stats

from torch_srelu.lab.paper import pair_tables
from torch_srelu.lab.paper.experiments import select_experiments
from torch_srelu.lab.paper.figures.overview_figure import ROWS, overview
from torch_srelu.lab.paper.published import TABLES
from torch_srelu.lab.paper.results import PaperResults


def test_dots_are_the_errors_of_the_seeds_and_the_papers(paper_results: PaperResults) -> None:
    first, second, _ = overview(paper_results).axes
    published = {row.name: row.errors for row in TABLES["table2"].rows}
    for axes, condition in ((first, "cifar10"), (second, "cifar100")):
        rows = ["nin+relu", "nin+prelu", "nin+srelu"]
        assert [t.get_text() for t in axes.get_yticklabels()] == ["ReLU", "PReLU", "SReLU"]
        diamonds = [line for line in axes.lines if line.get_marker() == "D"]
        assert [float(d.get_xdata()[0]) for d in diamonds] == [
            published[r][condition] for r in rows
        ]  # type: ignore[index]
        seeds = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata())]  # type: ignore[arg-type]
        for line, row in zip(seeds, rows, strict=True):
            entry = paper_results.entry(row, condition, "short")
            assert entry is not None
            np.testing.assert_array_equal(line.get_xdata(), list(entry.errors.values()))


def test_a_data_set_of_another_length_says_so(tmp_path: Path) -> None:
    found = [
        ended(tmp_path, run)
        for experiment in select_experiments(["mnist"])
        for run in experiment.runs({})
    ]
    first, *_ = overview(PaperResults(found)).axes
    assert first.get_title() == "MNIST, NIN, 50 epochs"
    diamonds = [line for line in first.lines if line.get_marker() == "D"]
    expected = [row.errors["mnist"] for row in TABLES["table4"].rows if row.name in ROWS]
    shown = [label.get_text() for label in first.get_yticklabels()]
    assert shown == ["ReLU", "PReLU", "SReLU"]
    assert [float(d.get_xdata()[0]) for d in diamonds] == [expected[0], *expected[-2:]]  # type: ignore[index]


def test_lines_are_the_differences_from_srelu(tmp_path: Path) -> None:
    named = ["headline-cifar10", "ablation-left", "ablation-quantile95"]
    runs = {
        run.key(): run for experiment in select_experiments(named) for run in experiment.runs({})
    }
    found = [
        ended(tmp_path, run, "diverged" if run.quantile == 0.95 else "finished")
        for run in runs.values()
    ]
    paper_results = PaperResults(found)
    *_, axes = overview(paper_results).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["ReLU, n = 3", "PReLU, n = 3", "left side only, n = 3", "95th percentile"]
    assert [text.get_text() for text in axes.texts] == ["diverged"]
    zero, *lines = axes.lines
    assert list(zero.get_xdata()) == [0, 0]  # type: ignore[call-overload]
    means = [float(line.get_xdata()[0]) for line in lines if line.get_marker() == "o"]  # type: ignore[index]
    relu, srelu = (
        paper_results.entry(f"nin+{name}", "cifar10", "short") for name in ("relu", "srelu")
    )
    assert relu is not None
    assert srelu is not None
    pairs = zip(relu.errors.values(), srelu.errors.values(), strict=True)
    above = [a - b for a, b in pairs]
    assert means[0] == pytest.approx(np.mean(above))
    left = pair_tables.CHANGED[0].difference(paper_results).versus
    assert left is not None
    assert means[2] == left.paired.mean
    spans = [list(line.get_xdata()) for line in lines if line.get_marker() != "o"]  # type: ignore[call-overload]
    spread = stats.t(2).ppf(0.975) * np.std(above, ddof=1) / 3**0.5
    assert spans[0] == pytest.approx([means[0] - spread, means[0] + spread])


def test_without_records_it_says_how_to_get_them() -> None:
    with pytest.raises(ValueError, match="srelu paper run headline"):
        overview(PaperResults([]))
