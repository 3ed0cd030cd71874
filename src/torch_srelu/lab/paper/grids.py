"""The paper's tables by name, with our numbers beside its own."""

from __future__ import annotations

from typing import Any

from ..tables import Grid
from . import errors, parameters, table3
from .published import TABLES
from .standing import Standing

NAMES = ("table1", "table2", "table3", "table4", "table5")
COUNTED = ("table2", "table4", "table5")  # those that give numbers of parameters


def table(name: str, standing: Standing) -> list[Grid]:
    """A table for people."""
    if name == "table3":
        return table3.grids(standing)
    counts = [parameters.grid(TABLES[name])] if name in COUNTED else []
    return [*errors.grids(TABLES[name], standing), *counts]


def entries(name: str, standing: Standing) -> list[dict[str, Any]]:
    """A table as plain values, one for each cell and length."""
    if name == "table3":
        return list(table3.entries(standing))
    return list(errors.entries(TABLES[name], standing))
