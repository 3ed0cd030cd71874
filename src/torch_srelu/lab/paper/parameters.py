"""How many parameters the networks have, counted, beside what the paper says."""

from __future__ import annotations

from ..activations import Site, activation
from ..nets import Conv, Pool, plan
from ..seeds import generator
from ..tables import NOTHING, Grid
from .published import TITLES, Table
from .rows import ROWS


def grid(table: Table) -> Grid:
    """The numbers of parameters of a table's networks, counted, beside the paper's."""
    rows = []
    for row in table.rows:
        for condition in table.conditions:
            if row.name in ROWS and "+" not in condition and condition in row.errors:
                weights, extra = count(row.name, condition)
                counted = f"{weights:,}" + (f" + {extra:,}" if extra else "")
                rows.append([row.title, TITLES[condition], row.parameters or NOTHING, counted])
    note = "Counted in the networks that are trained here: weights and biases + activations."
    headers = ["model", "data", "paper", "ours"]
    return Grid(f"Table {table.number}: numbers of parameters", headers, rows, note)


def count(row: str, condition: str) -> tuple[int, int]:
    """Weights and biases of a row's network, and the parameters of its activations.

    Example:
        >>> count("nin+srelu", "cifar10")
        (966986, 5672)
    """
    run = ROWS[row](condition, 1)
    spec, unit = plan(run.net), activation(run.activation)
    weights, extra, channels, size = 0, 0, spec.channels, spec.size
    for layer in spec.layers:
        if isinstance(layer, Pool):
            size = (size - 2) // 2 + 1
        elif isinstance(layer, Conv):
            weights += layer.channels * (channels * layer.kernel**2 + 1)
            site = Site(layer.channels, size, size, generator(1, "activation"))
            extra += sum(p.numel() for p in unit.build(site, **run.options).parameters())
            channels = layer.channels
    return weights, extra
