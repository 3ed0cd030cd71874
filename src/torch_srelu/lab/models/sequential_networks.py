"""NIN, the networks of maxout and of the APL paper, and linear classifiers: from networks.toml."""

from __future__ import annotations

from typing import Any

from ..util.package_files import read_toml
from ..util.patience import DEAD_AFTER
from .layers import ConvSpec, DenseSpec, normal, uniform
from .sequential import (
    DropoutSpec,
    GlobalAverage,
    LayerSpec,
    PoolSpec,
    SequentialSpec,
    average_pool,
    max_pool,
)

_LAYERS = {"conv": ConvSpec, "dense": DenseSpec}
_INITIALIZERS = {"normal": normal, "uniform": uniform}
_POOLINGS = {"max": max_pool, "average": average_pool}


def _layer(kind: str, fields: dict[str, Any], shared: dict[str, Any]) -> LayerSpec:
    """The layer of a line; ``shared`` are fields of convolutions and dense layers."""
    if kind == "pool":
        return PoolSpec(_POOLINGS[fields.pop("pooling")], **fields)
    if kind == "dropout":
        return DropoutSpec(**fields)
    if kind == "mean":
        return GlobalAverage
    fields = shared | fields
    for name in _INITIALIZERS.keys() & fields.keys():
        fields["initializer"] = _INITIALIZERS[name](fields.pop(name))
    return _LAYERS[kind](**fields)


def _read() -> dict[str, SequentialSpec]:
    tables = read_toml("torch_srelu.lab.models", "networks.toml")
    found: dict[str, SequentialSpec] = {}
    for name, own in tables.items():
        table = tables[name] = tables.get(own.get("like"), {}) | own
        change = own.get("change", {})
        table["layers"] = [line | change.get(line.get("name"), {}) for line in table["layers"]]
        shared = {"channels": table["classes"], **table.get("all", {})}
        layers = tuple(
            _layer(line["kind"], {k: v for k, v in line.items() if k != "kind"}, shared)
            for line in table["layers"]
        )
        fields = {k: table[k] for k in ("channels", "size", "classes", "threads") if k in table}
        if name.startswith("nin-"):  # which learns at once or not at all
            fields["dead_after"] = DEAD_AFTER
        found[name] = SequentialSpec(**fields, layers=layers)
    return found


NETWORKS = _read()
