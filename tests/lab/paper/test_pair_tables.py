"""SReLU with one decision changed, and other pairs of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from reproduction import LAYERS
from specimens import record_of

from torch_srelu.lab.analysis.comparison_tables import TextTable
from torch_srelu.lab.paper import pair_tables, paper_tables
from torch_srelu.lab.paper.experiments import select_experiments
from torch_srelu.lab.paper.results import PaperResults


def test_an_ablation_is_measured_against_srelu_of_the_same_seeds(tmp_path: Path) -> None:
    experiment = select_experiments(["ablation-left"])[-1]
    wrong = {(): 18, ("t_r", "a_r"): 21}
    found = [
        record_of(tmp_path, run, range(wrong[run.fixed] + run.seed % 2), layers=LAYERS, kept=1)
        for run in experiment.runs({})
    ]
    changed, others = pair_tables.make_tables(PaperResults(found))
    left, right = changed.rows[:2]
    mean = np.mean([22, 21, 22]) / 2
    assert left[1:] == [f"{mean:.2f}", "0.29", "+1.50", "-", "3", "-"]  # no spread, no test
    assert right[1:] == ["not run", "-", "-", "-", "-", "-"]
    assert "`srelu paper run ablations`, 30 runs of 100 epochs" in changed.note
    assert "`srelu paper run units-cifar10`, 6 runs" in changed.note  # not those of CIFAR-100
    assert "`srelu paper run compute`, 3 runs of 110 epochs" in others.note
    fewer = pair_tables.make_tables(
        PaperResults(r for r in found if not (r.run.fixed and r.run.seed == 2))
    )[0]
    assert fewer.rows[0][5] == "2"
    assert "`srelu paper run ablations`, 31 runs of 100 epochs" in fewer.note


def test_an_ablation_that_diverged_was_run(tmp_path: Path) -> None:
    found = [
        record_of(
            tmp_path,
            run,
            range(18 + run.seed),
            layers=LAYERS,
            kept=1,
            status="diverged" if run.activation == "srelu-shared" else "finished",
        )
        for run in select_experiments(["shared-cifar10"])[-1].runs({})
    ]
    paper_results = PaperResults(found)
    changed, _ = pair_tables.make_tables(paper_results)
    assert changed.rows[-1] == ["shared by channels", "diverged", "-", "-", "-", "-", "-"]
    assert "shared by channels: 3 diverged." in changed.note
    assert "srelu paper run shared" not in changed.note
    rows = {row[0]: row for row in paper_tables.make_tables("table1", paper_results)[0].rows}
    assert rows["NIN + SReLU, shared"][2] == "diverged"


def test_an_ablation_without_a_difference_says_why(tmp_path: Path) -> None:
    def changed(folder: str, status: str) -> TextTable:
        found = [
            record_of(
                tmp_path / folder,
                run,
                range(18 + run.seed),
                layers=LAYERS,
                kept=1,
                status="finished" if run.fixed else status,
            )
            for run in select_experiments(["ablation-left"])[-1].runs({})
        ]
        return pair_tables.make_tables(PaperResults(found))[0]

    grid = changed("diverged", "diverged")
    assert grid.rows[0][1:] == ["10.00", "0.50", "-", "-", "-", "-"]
    assert "left side only, base: 3 diverged." in grid.note
    assert "right side only, base" not in grid.note


def test_a_difference_waits_for_both_sides(tmp_path: Path) -> None:
    runs = (run for run in select_experiments(["compute-cifar10"])[-1].runs({}) if run.epochs > 100)
    found = [record_of(tmp_path, run, range(20), layers=LAYERS, kept=1) for run in runs]
    _, others = pair_tables.make_tables(PaperResults(found))
    assert others.rows[1][1:4] == ["10.00", "0.00", "-"]
    assert "`srelu paper run headline-cifar10 headline-cifar100`, 18 runs" in others.note
