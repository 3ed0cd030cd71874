"""Reads the texts and tables that come with the package."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any


def read_text(package: str, name: str) -> str:
    """A text file of a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def read_toml(package: str, name: str) -> dict[str, Any]:
    """The tables of a TOML file of a package; arrays are tuples."""
    return _with_tuples(tomllib.loads(read_text(package, name)))


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(entry) for key, entry in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
