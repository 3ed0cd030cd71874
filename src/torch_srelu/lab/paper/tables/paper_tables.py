"""The paper's tables by name, with our numbers beside its own."""

from __future__ import annotations

from typing import Any

from ...analysis.comparison_tables import TextTable
from ..published import TABLES
from ..standing import Standing
from . import error_tables, parameters, table3

NAMES = ("table1", "table2", "table3", "table4", "table5")
COUNTED = ("table2", "table4", "table5")  # those that give numbers of parameters


def table(name: str, standing: Standing) -> list[TextTable]:
    """A table for people."""
    if name == "table3":
        return table3.grids(standing)
    counts = [parameters.grid(TABLES[name])] if name in COUNTED else []
    return [*error_tables.grids(TABLES[name], standing), *counts]


def entries(name: str, standing: Standing) -> list[dict[str, Any]]:
    """A table as plain values, one for each cell and length."""
    if name == "table3":
        return list(table3.entries(standing))
    return list(error_tables.entries(TABLES[name], standing))
