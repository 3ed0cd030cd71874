"""Draws the bandwidth that activations reach on tensors of every size.

    python benchmarks/draw_bandwidth.py         # those committed of a GPU, as docs/bandwidth.svg
    python benchmarks/bench_op.py --sizes       # measures: runs/bench/sizes-<device>.csv
    python benchmarks/draw_bandwidth.py runs/bench/sizes-cuda.csv  # as runs/bench/bandwidth.svg

Bytes are those that must move: forward reads the input and writes the output; backward reads the
gradient and the input and writes the gradient of the input. The floor is a negation of the same
tensor, which only moves bytes. On a GPU, times are those of captured graphs.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from places import COMMITTED
from torch_srelu.lab.analysis.op_timing import FLOOR, PASSES
from torch_srelu.lab.paper.figures.drawing import SOFT, panels, render, styled
from torch_srelu.lab.util.colors import activation_colors
from torch_srelu.lab.util.files import write

ITEM_BYTES = {"float32": 4, "bfloat16": 2}
PICTURE = "bandwidth.svg"
DOCS = Path(__file__).parents[1] / "docs"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("records", type=Path, nargs="?", help="measurements; else the committed")
    parser.add_argument("--out", type=Path, help="picture; else in docs, or beside the records")
    given = parser.parse_args(arguments)
    records = given.records or COMMITTED / "sizes-cuda.csv"
    if not records.exists():
        parser.error(f"nothing was measured there yet: no {records}; see --help")
    out = given.out or (records.parent if given.records else DOCS) / PICTURE
    with records.open(newline="") as file:
        figure = draw(list(csv.DictReader(file)))
    write(out, render(figure, "svg"))
    print(f"written to {out}")


def draw(rows: list[dict[str, str]]) -> Figure:
    """A panel for each dtype and pass; a curve for each activation, and one for the floor."""
    clock = "gpu" if any(r["clock"] == "gpu" for r in rows) else "wall"
    rows = [r for r in rows if r["clock"] == clock]
    dtypes = list(dict.fromkeys(r["dtype"] for r in rows))
    with styled():
        figure, axes = panels(len(dtypes), len(PASSES), (7.4, 2.7 * len(dtypes)))
        places = [(dtype, which) for dtype in dtypes for which in PASSES]
        for panel, (dtype, which) in zip(axes, places, strict=True):
            _panel(panel, [r for r in rows if (r["dtype"], r["pass"]) == (dtype, which)])
            panel.set_title(f"{dtype}, {which}", fontsize=9.5)
        axes[0].legend(frameon=False, fontsize=8)
        first = rows[0]
        figure.supxlabel(
            f"MiB of the tensor. {first['hardware']}, torch {first['torch']}, "
            f"medians of {first['rounds']} rounds",
            fontsize=8,
        )
        figure.supylabel("GB/s", fontsize=8)
    return figure


def _panel(axes: Axes, rows: list[dict[str, str]]) -> None:
    names = dict.fromkeys(r["provider"] for r in reversed(rows) if r["provider"] != FLOOR)
    own = activation_colors(name.partition(" ")[0] for name in names)  # "srelu fused": SReLU's
    for name, colour in [*zip(names, own, strict=True), (FLOOR, SOFT)]:
        points = sorted(_point(r) for r in rows if r["provider"] == name)
        line = "--" if name == FLOOR else "-"
        axes.plot(*zip(*points, strict=True), line, color=colour, label=name, linewidth=1.4)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _point(row: dict[str, str]) -> tuple[float, float]:
    """(MiB of the tensor, GB/s)"""
    size = math.prod(map(int, row["shape"].split("x"))) * ITEM_BYTES[row["dtype"]]
    moved = 2 * size * PASSES[row["pass"]]  # in multiples of one read and one write
    return size / 2**20, moved / float(row["median_us"]) / 1e3


if __name__ == "__main__":
    main()
