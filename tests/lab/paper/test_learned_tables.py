"""When t_r was set, from records."""

from pathlib import Path

import numpy as np
import pytest
from reproduction import LAYERS, ended

from torch_srelu.lab.config.recipes import faithful
from torch_srelu.lab.paper import learned_tables
from torch_srelu.lab.paper.published import CIFAR10, CIFAR100, LEARNED
from torch_srelu.lab.paper.results import PaperResults
from torch_srelu.lab.paper.row_recipes import ROWS


def test_columns_are_means_of_the_runs_by_when_they_were_adapted(tmp_path: Path) -> None:
    condition = CIFAR10
    first = [ended(tmp_path, faithful(condition, "srelu", seed)) for seed in (1, 2)]
    left = ended(tmp_path, ROWS["srelu:left"](condition, 1))
    reused = ended(tmp_path, ROWS["reuse:srelu"](condition, 1))
    diverged = ended(tmp_path, ROWS["srelu:freeze25"](condition, 1), "diverged")
    (grid,) = learned_tables.adaptation_tables(PaperResults([*first, left, reused, diverged]))
    assert grid.headers == ["layer", "5 of 100, kept", "5 of 100", "reused", "paper"]
    assert [row[0] for row in grid.rows] == [*LEARNED[condition], "n"]
    assert grid.rows[-1][1:4] == ["1", "2", "1"]
    for row, layer in zip(grid.rows, LAYERS, strict=False):
        expected = np.mean([record.parameters()[layer][-1][0].numpy() for record in first])
        assert float(row[2]) == pytest.approx(expected, abs=5e-3)


def test_each_data_set_has_a_table_of_its_own(tmp_path: Path) -> None:
    lengths = ("short", "published")
    runs = [faithful(c, "srelu", 1, length) for c in (CIFAR10, CIFAR100) for length in lengths]
    grids = learned_tables.adaptation_tables(PaperResults([ended(tmp_path, run) for run in runs]))
    assert [grid.title.partition(": ")[2] for grid in grids] == ["CIFAR-10", "CIFAR-100"]
    for grid, condition in zip(grids, (CIFAR10, CIFAR100), strict=True):
        assert grid.headers == ["layer", "5 of 100", "15 of 308", "paper"]
        assert [row[-1] for row in grid.rows[:-1]] == [
            f"{v['t_r']:.2f}" for v in LEARNED[condition].values()
        ]


def test_one_moment_says_nothing(tmp_path: Path) -> None:
    assert (
        learned_tables.adaptation_tables(
            PaperResults([ended(tmp_path, faithful("cifar10", "srelu", 1))])
        )
        == []
    )
