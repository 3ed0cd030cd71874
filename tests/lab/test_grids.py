"""The paper's tables beside ours, for people and as plain values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from torch_srelu.lab.nets import build
from torch_srelu.lab.paper import grids, parameters
from torch_srelu.lab.paper.published import LEARNED
from torch_srelu.lab.paper.rows import ROWS
from torch_srelu.lab.paper.standing import Standing

KEYS = ["row", "condition", "paper", "ours", "protocol", "note"]


def test_json_is_as_agreed(standing: Standing) -> None:
    entries = grids.entries("table2", standing)
    assert all(list(e) == KEYS for e in entries)
    by_cell = {(e["row"], e["condition"]): e for e in entries}
    assert len(by_cell) == len(entries) == 11 + 12 + 10 + 6
    srelu_entry = by_cell["nin+srelu", "cifar10"]
    errors = [(18 + s) / 2 for s in range(1, 9)]
    low, high = stats.t.interval(0.95, 7, np.mean(errors), stats.sem(errors))
    assert srelu_entry["paper"] == 8.41
    assert srelu_entry["protocol"] == "faithful, 100 epochs"
    assert srelu_entry["ours"] == {
        "mean": pytest.approx(np.mean(errors)),
        "std": pytest.approx(np.std(errors, ddof=1)),
        "n": 8,
        "ci95": pytest.approx([low, high]),
    }
    empty = by_cell["nin+apl", "cifar100"]
    assert empty["ours"] is None
    assert "`srelu paper run units-cifar100`, 6 runs of 100 epochs" in empty["note"]
    assert by_cell["maxout", "cifar10"]["note"].startswith("not run: quoted by the paper")


def test_every_table_has_text_and_values(standing: Standing) -> None:
    for name in grids.NAMES:
        assert all(
            len(row) == len(g.headers) for g in grids.table(name, standing) for row in g.rows
        )
        assert all(list(e) == KEYS for e in grids.entries(name, standing))


def test_table3_has_means_and_spread_over_channels(standing: Standing) -> None:
    cell = standing.cell("nin+srelu", "cifar10", "short")
    assert cell is not None
    last = np.stack([r.parameters()["cccp4"][-1].numpy() for r in cell.rival.finished])
    thresholds, slopes, *_ = grids.table("table3", standing)
    (row,) = (row for row in slopes.rows if row[0] == "cccp4")
    a_r = last[:, 1]  # t_r, a_r, t_l, a_l in records; t_r, t_l, a_r, a_l in the paper's table
    assert row[1:4] == ["0.77", f"{a_r.mean():.2f}", f"{a_r.std():.2f}"]
    assert thresholds.rows[0][4] == "-0.48"
    entries = {(e["row"], e["condition"]): e for e in grids.entries("table3", standing)}
    assert len(entries) == 2 * 9 * 4
    ours = entries["nin+srelu:cccp4:a_r", "cifar10"]["ours"]
    assert ours["mean"] == pytest.approx(a_r.mean())
    assert ours["std"] == pytest.approx(a_r.mean(1).std(ddof=1), rel=1e-5)
    assert LEARNED["cifar100"]["cccp6"][0] == entries["nin+srelu:cccp6:t_r", "cifar100"]["paper"]


def test_parameters_are_counted_as_in_the_networks() -> None:
    for row, condition in (
        ("nin+apl", "cifar100"),
        ("nin+prelu", "mnist"),
        ("nin+srelu", "cifar10"),
    ):
        run = ROWS[row](condition, 1)
        net = build(run.net, run.activation, run.options)
        assert sum(parameters.count(row, condition)) == sum(p.numel() for p in net.parameters())
