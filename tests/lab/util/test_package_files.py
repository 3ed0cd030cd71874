"""Texts and tables that come with the package."""

import tomllib
from pathlib import Path

from torch_srelu.lab.util.package_files import read_toml

PROJECT = Path(__file__).parents[3]


def test_arrays_are_tuples_at_any_depth() -> None:
    rows = read_toml("torch_srelu.lab.paper", "rows.toml")
    assert rows["nin"]["srelu:left"]["fixed"] == ("t_r", "a_r")
    layers = read_toml("torch_srelu.lab.models", "networks.toml")["nin-digits"]["layers"]
    assert isinstance(layers, tuple)


def test_every_table_is_in_the_wheel() -> None:
    source = PROJECT / "src"
    tool = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = tool["setuptools"]["package-data"]
    packed = {
        path
        for package, names in patterns.items()
        for name in names
        for path in (source / package.replace(".", "/")).glob(name)
    }
    tables = {p for end in ("csv", "toml", "mplstyle", "md") for p in source.rglob(f"*.{end}")}
    tables = {path for path in tables if ".egg-info" not in str(path)}
    assert tables
    assert tables <= packed
