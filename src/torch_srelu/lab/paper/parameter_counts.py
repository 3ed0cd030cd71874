"""How many parameters the networks have, counted, beside what the paper says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..analysis.comparison_tables import NOTHING, TextTable
from ..models import network_registry
from .published import IMAGENET, NOTES, TITLES, PublishedTable
from .row_recipes import ROWS, SYSTEMS

_HEADS = "heads."  # of networks that have some in training alone


def make_table(published: PublishedTable) -> TextTable:
    """The numbers of parameters of a table's networks, counted, beside the paper's."""
    rows = []
    for row in (*published.rows, *published.beside):
        for condition in (c for c in row.errors if "+" not in c):
            weights, extra = count(row.name, condition)
            counted = f"{weights:,}" + (f" + {extra:,}" if extra else "")
            rows.append([row.title, TITLES[condition], row.parameters or NOTHING, counted])
    note = "Counted in the networks that are trained here: weights and biases + activations."
    note += f" {NOTES['parameters'][f'table{published.number}']}"
    if any(row.name in SYSTEMS for row in published.rows):
        note += " Heads that are absent at test are not counted."
    headers = ["model", "data", "paper", "ours"]
    return TextTable(f"Table {published.number}: numbers of parameters", headers, rows, note)


def count(row: str, condition: str) -> tuple[int, int]:
    """Weights and biases of a row's network, and the parameters of its activations.

    Without heads that are there for training alone; GoogLeNet's for all 1,000 classes.

    Example:
        >>> count("nin+srelu", "cifar10")
        (966986, 5672)
    """
    run = (SYSTEMS.get(row) or ROWS[row])(condition, 1)
    net = "googlenet-imagenet" if condition == IMAGENET else run.net
    with _Unfilled():
        built = network_registry.network_spec(net).build(run.activation, run.options)
    tested = sum(p.numel() for n, p in built.named_parameters() if not n.startswith(_HEADS))
    acts = [act for name, act in built.activations() if not name.startswith(_HEADS)]
    extra = sum(p.numel() for act in acts for p in act.parameters())
    return tested - extra, extra


class _Unfilled(TorchFunctionMode):
    """Leaves tensors as they are made: filling them would take most of the time of a table.

    So would a shortcut of torch's: a tensor made like one without data imports its compiler.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (Tensor.normal_, Tensor.uniform_, Tensor.fill_):
            return args[0]
        if func is torch.empty_like:
            return torch.empty(args[0].shape)
        return func(*args, **(kwargs or {}))
