"""Where measurements are written and read: one's own, and those that are committed."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_srelu.lab.files import write

COMMITTED = Path(__file__).parent / "results"
OWN = Path("runs", "bench")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options from which `chosen` makes a folder, for measurements that have a table."""
    parser.add_argument(
        "--table", action="store_true", help="measure nothing, print the README's table"
    )
    add_place(parser)


def add_place(parser: argparse.ArgumentParser) -> None:
    """The same for those that have none."""
    parser.set_defaults(table=False)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--out", type=Path, help=f"folder of measurements; else {OWN}, for --table the committed"
    )
    place.add_argument("--record", action="store_true", help="write to the committed measurements")


def chosen(given: argparse.Namespace) -> Path:
    """The folder that the options name: committed measurements are replaced only where asked."""
    return given.out or (COMMITTED if given.record or given.table else OWN)


def stamp(where: Mapping[str, Any]) -> dict[str, Any]:
    """What a measurement has of the `environment` it was taken in."""
    versions = {name: where["versions"][name] for name in ("torch_srelu", "torch")}
    return {"hardware": where["hardware"], "threads": where["threads"], **versions}


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """All rows, complete or not at all; says where they are."""
    text = io.StringIO()
    out = csv.DictWriter(text, columns, lineterminator="\n")
    out.writeheader()
    out.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, text.getvalue().encode())
    print(f"written to {path}")
