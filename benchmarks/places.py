"""Reads and writes measurements: your own in runs/bench, the committed ones in results."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_srelu.lab.util.files import write

COMMITTED = Path(__file__).parent / "results"
OWN = Path("runs", "bench")
STAMP = ("hardware", "threads", "torch_srelu", "torch", "source", "measured")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `chosen` reads."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--out", type=Path, help=f"folder of measurements; else {OWN}")
    place.add_argument("--record", action="store_true", help="write to the committed measurements")


def chosen(given: argparse.Namespace) -> Path:
    """The folder that the options name; committed measurements are replaced with --record only."""
    return given.out or (COMMITTED if given.record else OWN)


def stamp(where: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that come from the `environment`; `source` is a digest of the code."""
    here = {**where, **where["versions"], "measured": where["started"]}
    return {name: here[name] for name in STAMP}


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows that `write_csv` wrote; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Writes all rows atomically and prints the path."""
    text = io.StringIO()
    out = csv.DictWriter(text, columns, lineterminator="\n")
    out.writeheader()
    out.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, text.getvalue().encode())
    print(f"written to {path}")
