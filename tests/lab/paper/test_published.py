"""The paper's tables as transcribed: against sums over its columns, and what its text says."""

from __future__ import annotations

import pytest

from torch_srelu.lab.analysis.learned_parameters import LEARNED_NAMES
from torch_srelu.lab.paper.published import ERRORS, LEARNED, TABLES

PRINTED = {name: {row.name: row.errors for row in table.rows} for name, table in TABLES.items()}


@pytest.mark.parametrize(
    ("table", "condition", "rows", "total"),
    [
        ("table1", "cifar10", 3, 27.85),
        ("table2", "cifar10", 11, 110.37),
        ("table2", "cifar100", 12, 423.12),
        ("table2", "cifar10+flips", 10, 83.28),
        ("table2", "cifar100+flips", 6, 192.74),
        ("table4", "mnist", 7, 2.94),
        ("table5", "imagenet", 2, 20.96),
    ],
)
def test_columns_add_up(table: str, condition: str, rows: int, total: float) -> None:
    column = [errors[condition] for errors in PRINTED[table].values() if condition in errors]
    assert len(column) == rows
    assert sum(column) == pytest.approx(total)


def test_learned_parameters_add_up() -> None:
    totals = {
        c: [sum(of[name] for of in layers.values()) for name in LEARNED_NAMES]
        for c, layers in LEARNED.items()
    }
    assert LEARNED_NAMES == ("t_r", "t_l", "a_r", "a_l")
    assert totals["cifar10"] == pytest.approx([151.98, -2.39, 8.46, 0.22])
    assert totals["cifar100"] == pytest.approx([142.45, -3.99, 7.6, 0.52])
    assert all(len(layers) == 9 for layers in LEARNED.values())


@pytest.mark.parametrize(
    ("worse", "better", "condition", "points"),
    [
        ("nin+relu", "nin+srelu", "cifar10", 1.26),
        ("nin+lrelu", "nin+srelu", "cifar10", 1.34),
        ("nin+prelu", "nin+srelu", "cifar10", 1.33),
        ("nin+relu", "nin+srelu", "cifar100", 4.86),
        ("nin+lrelu", "nin+srelu", "cifar100", 4.90),
        ("nin+prelu", "nin+srelu", "cifar100", 4.85),
        ("nin+apl", "nin+srelu-manual", "cifar10", 0.98),
        ("nin+apl", "nin+srelu-manual", "cifar100", 3.04),
        ("googlenet", "googlenet+srelu", "imagenet", 1.24),
    ],
)
def test_differences_are_those_of_the_text(worse, better, condition, points) -> None:
    table = "table5" if condition == "imagenet" else "table2"
    found = PRINTED[table][worse][condition] - PRINTED[table][better][condition]
    assert found == pytest.approx(points)


def test_where_tables_1_and_2_disagree_table_2_counts() -> None:
    assert ERRORS["nin+relu", "cifar10"] == PRINTED["table2"]["nin+relu"]["cifar10"]
    assert ERRORS["nin+srelu-shared", "cifar10"] == PRINTED["table1"]["nin+srelu-shared"]["cifar10"]
