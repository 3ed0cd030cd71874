"""The price of SReLU beside its rivals': ``make bench``, on whatever device is there.

Prints a table of ratios for every tensor and writes all timings, with percentiles, hardware and
versions, to ``benchmarks/results/op-<device>.csv``. ``--quick`` takes fewer rounds and tensors;
``--sizes`` times tensors of every size instead, to ``sizes-<device>.csv``, which
``draw_bandwidth.py`` draws; ``--table`` times nothing and prints the table of the README from what
was written before.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
from pathlib import Path

import torch

from torch_srelu import __version__, backends
from torch_srelu.lab.bench import PROVIDERS, Case, Timing, measure

COLUMNS = (
    *("provider", "shape", "dtype", "layout", "pass", "clock", "median_us", "p20_us", "p80_us"),
    *("rounds", "hardware", "torch_srelu", "torch"),
)
LARGE_US = 100  # below this a call's time is not that of its bytes
F32, BF16 = torch.float32, torch.bfloat16
LARGE_GPU = [
    Case((512, 192, 32, 32), dtype, layout)
    for dtype in (F32, BF16)
    for layout in ("contiguous", "channels_last")
] + [Case((131072, 1024), dtype, "contiguous") for dtype in (F32, BF16)]
SMALL_GPU = [
    Case(shape, dtype, layout)
    for shape in ((128, 192, 16, 16), (128, 192, 8, 8))
    for dtype in (F32, BF16)
    for layout in ("contiguous", "channels_last")
    if not (shape[2] == 16 and dtype == F32)  # that one is not small
] + [Case((1024, 1024), dtype, "contiguous") for dtype in (F32, BF16)]
CPU = [
    Case((64, 192, 32, 32), dtype, layout)
    for dtype in (F32, BF16)
    for layout in ("contiguous", "channels_last")
] + [Case((16384, 512), F32, "contiguous")]

SIZES = [Case((2**k, 128, 16, 16), dtype, "contiguous") for dtype in (F32, BF16) for k in range(13)]
DRAWN = ("relu", "prelu", "srelu fused")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, the main tensors only")
    parser.add_argument("--sizes", action="store_true", help="tensors of every size, to be drawn")
    parser.add_argument("--rounds", type=int, default=None, help="how often everything is timed")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--table", action="store_true", help="the README's table, from the records")
    args = parser.parse_args()
    if args.table:
        print(readme_table(args.out))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cases = SIZES if args.sizes else LARGE_GPU + SMALL_GPU if device == "cuda" else CPU
    providers = DRAWN if args.sizes else tuple(PROVIDERS)
    if args.quick:
        cases = cases[:2]
    rounds = args.rounds or (5 if args.quick else 30 if device == "cuda" else 15)
    if device == "cpu":
        touch_memory()
    hardware = describe(device)
    print(f"{hardware}; {versions()}; median of {rounds} rounds; ratios to relu\n")
    print(f"SReLU: {backends()[device]}\n")
    rows: list[Timing] = []
    for case in cases:
        found = list(measure(case, providers, rounds, device))
        print_table(case, found)
        rows += found
    write(rows, args.out / f"{'sizes' if args.sizes else 'op'}-{device}.csv", hardware)


def touch_memory() -> None:
    """Writes to half of the free memory once.

    A virtual machine may get its memory from its host when it is first touched, a page at a time:
    that takes several times what is timed here, and would hit whoever gets a fresh page.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    torch.ones(free // 2, dtype=torch.uint8)


def describe(device: str) -> str:
    """The hardware, in words."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = (
            line.split(":")[1] for line in cpuinfo.read_text().splitlines() if "model name" in line
        )
        model = next(names, model).strip()
    return f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def versions() -> str:
    return (
        f"torch-srelu {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    )


def print_table(case: Case, rows: list[Timing]) -> None:
    """One line a provider: time in microseconds and its ratio to relu's."""
    dtype = str(case.dtype).removeprefix("torch.")
    shape = "x".join(map(str, case.shape))
    print(f"{shape} {dtype} {case.layout} ({case.mebibytes:.3g} MiB)")
    columns = list(dict.fromkeys((r.clock, r.which) for r in rows))
    times = {(r.provider, r.clock, r.which): r.median for r in rows}
    print(" " * 18 + "".join(f"{f'{clock}, {which}':>27}" for clock, which in columns))
    for name in dict.fromkeys(r.provider for r in rows):
        cells = []
        for column in columns:
            t, relu = times[(name, *column)], times[("relu", *column)]
            cells.append(f"{t * 1e6:14.1f} us {t / relu:8.2f}x")
        print(f"  {name:16}" + "".join(f"{c:>27}" for c in cells))
    print(flush=True)


SHOWN = ("prelu", "gelu", "srelu reference", "srelu compiled", "srelu fused")


def readme_table(folder: Path) -> str:
    """Forward + backward of every recorded tensor that is large, as multiples of relu's time."""
    lines = [
        f"| forward + backward, time / relu's | {' | '.join(SHOWN)} |",
        "|---|" + "---|" * len(SHOWN),
    ]
    notes = []
    for path in sorted(folder.glob("op-*.csv"), reverse=True):
        with path.open(newline="") as file:
            rows = [r for r in csv.DictReader(file) if r["pass"] == "forward+backward"]
        clock = "gpu" if any(r["clock"] == "gpu" for r in rows) else "wall"
        rows = [r for r in rows if r["clock"] == clock]
        for tensor in dict.fromkeys((r["shape"], r["dtype"], r["layout"]) for r in rows):
            times = {
                r["provider"]: float(r["median_us"])
                for r in rows
                if (r["shape"], r["dtype"], r["layout"]) == tensor
            }
            if times["relu"] < LARGE_US:
                continue
            device = "GPU" if clock == "gpu" else "CPU"
            cells = [f"{times[name] / times['relu']:.2f}" for name in SHOWN]
            cells[-1] = f"**{cells[-1]}**"
            lines.append(f"| {device}, {', '.join(tensor)} | {' | '.join(cells)} |")
        first = rows[0]
        notes.append(f"{first['hardware']}, torch {first['torch']}, n = {first['rounds']} rounds")
    return "\n".join(lines) + "\n\nMedians within one run: " + "; ".join(notes) + "."


def write(rows: list[Timing], path: Path, hardware: str) -> None:
    """All rows as CSV, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for r in rows:
            shape, dtype = "x".join(map(str, r.case.shape)), str(r.case.dtype).split(".")[1]
            times = (f"{t * 1e6:.2f}" for t in (r.median, r.p20, r.p80))
            row = (r.provider, shape, dtype, r.case.layout, r.which, r.clock, *times, r.rounds)
            out.writerow((*row, hardware, __version__, torch.__version__))
    partial.replace(path)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
