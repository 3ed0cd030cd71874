"""Prints every table of times and memory in README and docs, from the committed measurements.

python benchmarks/tables.py
python benchmarks/tables.py runs/bench      # the same of your own: bench_op, _step, _adapt, _images
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import bench_adapt
import bench_images
import bench_op
import bench_step
from places import COMMITTED


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=COMMITTED,
        help="of measurements; else the committed",
    )
    folder = parser.parse_args(arguments).folder
    benches = (bench_op, bench_step, bench_adapt, bench_images)
    found = [text for bench in benches for text in bench.tables(folder)]
    if not found:
        parser.error(
            f"nothing was measured yet: {folder} has no op-, step-, adapt- or images-*.csv"
        )
    print("\n\n".join(found))


if __name__ == "__main__":
    main()
