"""How well networks fit, from records."""

from pathlib import Path

import numpy as np
import pytest
from reproduction import all_of, ended

from torch_srelu.lab.analysis.comparison_tables import NOTHING
from torch_srelu.lab.paper import fit_tables
from torch_srelu.lab.paper.experiments import select_experiments
from torch_srelu.lab.paper.results import PaperResults


def test_numbers_are_means_of_the_records(paper_results: PaperResults) -> None:
    fitted, inputs, weights, *others = fit_tables.make_tables(paper_results)
    assert len(others) == 3  # CIFAR-100
    entry = paper_results.entry("nin+prelu", "cifar10", "short")
    assert entry is not None
    runs = entry.finished
    name, loss, error, _, test, averaged, n = fitted.rows[1]
    assert (name, n) == ("PReLU", str(len(runs)))
    assert float(loss) == pytest.approx(np.mean([r.metrics[-1].train_loss for r in runs]), abs=1e-3)
    assert float(error) == pytest.approx(
        np.mean([100 * r.metrics[-1].train_error for r in runs]), abs=1e-2
    )
    assert float(test) == pytest.approx(np.mean(list(entry.errors.values())), abs=1e-2)
    assert float(averaged) == pytest.approx(float(test) / 2, abs=1e-2)  # as `record_of` has it
    for grid, values in (
        (inputs, [r.inputs().magnitude["conv2"][-1] for r in runs]),
        (weights, [r.weights()["conv2"][-1] for r in runs]),
    ):
        (line,) = (row for row in grid.rows if row[0] == "conv2")
        assert float(line[2]) == pytest.approx(np.mean(values), abs=1e-2)
    assert [row[0] for row in inputs.rows][:4] == ["conv1", "cccp1", "cccp2", "conv2"]
    assert inputs.rows[3][-1] == "5.32"  # the paper's


def test_changed_srelu_has_a_table_of_its_own(tmp_path: Path) -> None:
    runs = select_experiments(["ablation-left"])[-1].runs({})
    paper_results = PaperResults(ended(tmp_path, run) for run in runs)
    (changed,) = (
        grid
        for grid in fit_tables.make_tables(paper_results)
        if "one decision changed" in grid.title
    )
    (row,) = changed.rows
    left = paper_results.entry_of("ablation-left", "srelu:left")
    assert left is not None
    losses = [r.result["test_loss"] for r in left.finished if r.result]
    assert (row[0], row[-1]) == ("left side only", "3")
    assert float(row[3]) == pytest.approx(np.mean(losses), abs=1e-3)


def test_what_was_not_recorded_is_left_out(tmp_path: Path) -> None:
    found = all_of(tmp_path, "headline-cifar10")
    for record in found:
        (record.folder / "weights.safetensors").unlink()
        if record.run.activation == "prelu":
            (record.folder / "inputs.safetensors").unlink()
    _, inputs, *others = fit_tables.make_tables(PaperResults(found))
    assert others == []
    assert {row[2] for row in inputs.rows} == {NOTHING}
    assert fit_tables.make_tables(PaperResults([])) == []
