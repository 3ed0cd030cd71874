"""Times SReLU and other activations, forward and backward: ``make bench``, on a CPU or a GPU.

Prints a table of ratios for every tensor and writes all timings, with percentiles, hardware and
versions, to ``runs/bench/op-<device>.csv``; with ``--record`` to ``benchmarks/results``, where the
committed ones are. ``--quick`` takes fewer rounds and tensors. ``--sizes`` times tensors of every
size instead, to ``sizes-<device>.csv``, which ``draw_bandwidth.py`` draws; ``--resnet`` those of
ResNet-50 in torch's default layout, whose feature maps are no powers of two, to
``resnet-<device>.csv``.
"""

from __future__ import annotations

import argparse
import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import places
from torch_srelu import backends
from torch_srelu.lab.analysis.op_timing import PASSES, PROVIDERS, Case, Timing, measure
from torch_srelu.lab.records.collect_env import environment

COLUMNS = (
    *("provider", "shape", "dtype", "layout", "pass", "clock", "median_us", "p20_us", "p80_us"),
    *("rounds", *places.STAMP),
)
LARGE_MIB = 48  # from here on a call's time is that of its bytes
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h, in bytes
LARGE_RESULT = 4 << 20  # bytes
F32, BF16 = torch.float32, torch.bfloat16
LARGE_GPU = [
    Case((512, 192, 32, 32), dtype, layout)
    for dtype in (F32, BF16)
    for layout in ("contiguous", "channels_last")
] + [Case((131072, 1024), dtype, "contiguous") for dtype in (F32, BF16)]
# 64 MiB in either dtype.
LARGE_GPU += [
    Case(shape, dtype, layout)
    for images, dtype in ((512, F32), (1024, BF16))
    for shape, layout in (
        ((images, 128, 16, 16), "contiguous"),
        ((images, 128, 16, 16), "channels_last"),
        ((32 * images, 1024), "contiguous"),
    )
]
SMALL_GPU = [
    Case(shape, dtype, layout)
    for shape in ((128, 192, 16, 16), (128, 192, 8, 8))
    for dtype in (F32, BF16)
    for layout in ("contiguous", "channels_last")
    if not (shape[2] == 16 and dtype == F32)  # that one is not small
] + [Case((1024, 1024), dtype, "contiguous") for dtype in (F32, BF16)]
# 48 MiB in either dtype.
CPU = [
    Case(shape, dtype, layout)
    for shape, dtype in (((64, 192, 32, 32), F32), ((128, 192, 32, 32), BF16))
    for layout in ("contiguous", "channels_last")
] + [Case((24576, 512), F32, "contiguous")]

SIZES = [Case((2**k, 128, 16, 16), dtype, "contiguous") for dtype in (F32, BF16) for k in range(13)]
RESNET = [  # what a batch of 128 (float32) or 256 has at the ends of its stages
    Case((images, channels, side, side), dtype, "contiguous")
    for dtype, images in ((F32, 128), (BF16, 256))
    for channels, side in ((64, 112), (256, 56), (512, 28), (1024, 14), (2048, 7))
]
FEW = ("relu", "prelu", "srelu fused")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, the main tensors only")
    others = parser.add_mutually_exclusive_group()
    others.add_argument("--sizes", action="store_true", help="tensors of every size, to be drawn")
    others.add_argument("--resnet", action="store_true", help="ResNet-50's, in the default layout")
    parser.add_argument("--rounds", type=int, default=None, help="how often everything is timed")
    places.add_options(parser)
    args = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name, cases, providers = "op", LARGE_GPU + SMALL_GPU if device == "cuda" else CPU, PROVIDERS
    if args.sizes or args.resnet:
        name, cases = ("sizes", SIZES) if args.sizes else ("resnet", RESNET)
        providers = FEW
    if args.quick:
        cases = cases[:2]
    rounds = args.rounds or (5 if args.quick else 30 if device == "cuda" else 15)
    if device == "cpu":
        touch_memory()
    here = places.stamp(environment(torch.device(device)))
    versions = f"torch-srelu {here['torch_srelu']}, torch {here['torch']}"
    print(f"{here['hardware']}, {here['threads']} threads; {versions}")
    print(f"Medians of {rounds} rounds; ratios to relu\n")
    print(f"SReLU: {backends()[device]}\n")
    rows: list[dict[str, Any]] = []
    for case in cases:
        if device == "cpu":
            place_results(fresh=case.mebibytes * 2**20 >= LARGE_RESULT)
        found = list(measure(case, providers, rounds, device))
        print_table(case, found)
        rows += [row(timing) | here for timing in found]
    places.write_csv(places.chosen(args) / f"{name}-{device}.csv", COLUMNS, rows)


def touch_memory() -> None:
    """Writes to half of the free memory once.

    A virtual machine may get its memory from its host when it is first touched, a page at a time:
    that takes several times what is timed here, and would fall on any activation with a fresh page.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    torch.ones(free // 2, dtype=torch.uint8)


def place_results(fresh: bool) -> None:
    """Makes the C library allocate large results anew from the system; if not fresh, reuse memory.

    Results above 32 MiB are fresh memory in a new process, and small ones are reused memory. In
    between, and in an older process, they are one or the other, for one activation and not for
    another, which weighs more than what is timed. Small results reuse memory in either case.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_RESULT)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE_RESULT // 2 if fresh else 1 << 30)
        libc.malloc_trim(0)


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


def row(timing: Timing) -> dict[str, Any]:
    """A timing as it is recorded."""
    case = timing.case
    times = {"median_us": timing.median, "p20_us": timing.p20, "p80_us": timing.p80}
    return {
        "provider": timing.provider,
        "shape": "x".join(map(str, case.shape)),
        "dtype": str(case.dtype).removeprefix("torch."),
        "layout": case.layout,
        "pass": timing.which,
        "clock": timing.clock,
        "rounds": timing.rounds,
        **{name: f"{1e6 * seconds:.2f}" for name, seconds in times.items()},
    }


SHOWN = ("prelu", "gelu", "srelu reference", "srelu compiled", "srelu fused")


def tables(folder: Path) -> list[str]:
    """Recorded times of large tensors, ResNet-50's and a CPU's, as multiples of relu's."""
    return [
        *_of_large_tensors(folder),
        *_of_few(sorted(folder.glob("resnet-*.csv")), "ResNet-50"),
        *_of_few(sorted(folder.glob("sizes-cpu.csv")), "CPU"),
    ]


def _of_large_tensors(folder: Path) -> list[str]:
    lines = [
        f"| forward + backward, time / relu's | {' | '.join(SHOWN)} |",
        "|---|" + "---|" * len(SHOWN),
    ]
    notes = []
    for path in sorted(folder.glob("op-*.csv"), reverse=True):
        rows, device = _timed(path)
        for tensor, times in _by_tensor(rows, "forward+backward").items():
            shape, dtype, layout = tensor
            case = Case(tuple(map(int, shape.split("x"))), getattr(torch, dtype), layout)
            if case.mebibytes < LARGE_MIB:
                continue
            cells = [f"{times[name] / times['relu']:.2f}" for name in SHOWN]
            cells[-1] = f"**{cells[-1]}**"
            lines.append(f"| {device}, {', '.join(tensor)} | {' | '.join(cells)} |")
        notes.append(_note(rows[0], device))
    return ["\n".join(lines), f"Medians within one run: {'; '.join(notes)}."] if notes else []


def _of_few(paths: list[Path], title: str) -> list[str]:
    """Tables of all tensors that were timed with the activations of `FEW`."""
    found = []
    for path in paths:
        rows, device = _timed(path)
        asked = [(which, name) for which in PASSES for name in FEW[1:]]
        heads = [f"{name.split()[0]}, {which.replace('+', ' + ')}" for which, name in asked]
        lines = [
            f"| {title}, time / relu's | {' | '.join(heads)} |",
            "|---|" + "---|" * len(heads),
        ]
        times = {which: _by_tensor(rows, which) for which in PASSES}
        for tensor in times["forward"]:
            cells = []
            for which, name in asked:
                of = times[which][tensor]
                cells.append(f"{of[name] / of['relu']:.2f}")
            lines.append(f"| {', '.join(tensor[:2])} | {' | '.join(cells)} |")
        found += ["\n".join(lines), f"Medians within one run: {_note(rows[0], device)}."]
    return found


def _timed(path: Path) -> tuple[list[dict[str, str]], str]:
    """The rows of captured graphs if there are any, else all, and the kind of device."""
    rows = places.read_csv(path)
    clock = "gpu" if any(r["clock"] == "gpu" for r in rows) else "wall"
    return [r for r in rows if r["clock"] == clock], "GPU" if clock == "gpu" else "CPU"


def _by_tensor(rows: list[dict[str, str]], which: str) -> dict[tuple, dict[str, float]]:
    """Times of one pass: for each tensor, by provider."""
    found: dict[tuple, dict[str, float]] = {}
    for r in rows:
        if r["pass"] == which:
            tensor = found.setdefault((r["shape"], r["dtype"], r["layout"]), {})
            tensor[r["provider"]] = float(r["median_us"])
    return found


def _note(first: dict[str, str], device: str) -> str:
    threads = f", {first['threads']} threads" if device == "CPU" else ""
    return f"{first['hardware']}{threads}, torch {first['torch']}, n = {first['rounds']} rounds"


if __name__ == "__main__":
    main()
