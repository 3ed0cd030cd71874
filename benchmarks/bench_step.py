"""Times training steps of NIN and ResNet-50 with each activation, and measures their memory.

    python benchmarks/bench_step.py                              # eager; on a GPU captured too
    python benchmarks/bench_step.py --nets nin --modes compiled  # compiling takes longer

The activations alternate, a few steps each, so that a machine that slows down affects all alike.
Times are medians over the turns; a ratio is the median of the ratios to in-place relu within a
turn. Peak memory is that of one step of a network alone: weights, optimizer, data and everything
the step allocates (not told apart in captured steps, which own their memory, or on a CPU). "srelu
recomputed" runs under `torch_srelu.recompute_outputs`, which does nothing in compiled code; "in
part", only the modules with the largest tensors do (`training_steps.PARTS`).

Everything is written, with percentiles, hardware and versions, to step-<device>.csv in runs/bench,
with --record in benchmarks/results, where the committed ones are; there a network in a mode takes
the place of older measurements of the same.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import places
from torch_srelu.lab.records.collect_env import environment
from training_steps import (
    ACTIVATIONS,
    MODES,
    NETS,
    RECOMPUTING,
    RELU,
    Setting,
    Work,
    training_step,
    why_not,
)

COLUMNS = (
    *("net", "mode", "activation", "batch", "pixels", "precision", "median_ms", "p20_ms", "p80_ms"),
    *("ratio", "ratio_p20", "ratio_p80", "peak_mib", "turns", "steps"),
    *places.STAMP,
)
BATCH = {"nin": 128, "resnet50": 256, "vit_s": 64}
PIXELS = {"nin": 32, "resnet50": 224, "vit_s": 224}
TURN_S = 0.15  # minimum length of a turn
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    given = parse(arguments)
    where = environment(given.device)
    print(f"{where['hardware']}, {where['threads']} threads; torch {where['versions']['torch']}")
    for net in given.nets:
        for mode in given.modes:
            setting = Setting(
                given.device,
                given.batch or BATCH[net],
                given.precision,
                given.pixels or PIXELS[net],
            )
            rows = measure(net, mode, given.activations, setting, given.turns)
            describe(rows)
            save(rows, places.chosen(given) / f"step-{given.device.type}.csv", where)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    modes = [mode for mode in MODES if cuda or "captured" not in mode]
    quick = [mode for mode in modes if "compiled" not in mode]
    parser.add_argument("--nets", nargs="+", choices=NETS, default=["nin", "resnet50"])
    parser.add_argument("--modes", nargs="+", choices=modes, default=quick)
    names = list(ACTIVATIONS)
    parser.add_argument("--activations", nargs="+", choices=names, default=names)
    parser.add_argument("--turns", type=int, default=10, help="at least 3")
    parser.add_argument("--batch", type=int, help=f"images in a batch; else {BATCH}")
    parser.add_argument("--pixels", type=int, help="side of ResNet-50's images; else 224")
    parser.add_argument("--precision", choices=("float32", "bf16"), default=None)
    places.add_options(parser)
    given = parser.parse_args(arguments)
    if given.turns < 3:
        parser.error(f"--turns must be at least 3, or there is no spread; got {given.turns}")
    for net in given.nets:
        if reason := why_not(net):  # before other networks are measured
            others = " ".join(name for name in given.nets if name != net)
            parser.error(f"{net}: {reason}" + (f", or give --nets {others}" if others else ""))
    given.device = torch.device("cuda" if cuda else "cpu")
    given.precision = given.precision or ("bf16" if cuda else "float32")
    if RELU not in given.activations:
        given.activations.insert(0, RELU)  # the baseline
    return given


def measure(
    net: str, mode: str, activations: Sequence[str], setting: Setting, turns: int
) -> list[Row]:
    """One row an activation: a network in a mode."""
    names = [a for a in activations if not (a in RECOMPUTING and "compiled" in mode)]
    torch.compiler.reset()
    works, peaks = {}, {}
    for name in names:
        works[name], peaks[name] = prepare(net, name, mode, setting)
    steps = max(1, round(TURN_S / seconds(works[RELU], 1)))
    times = [{name: seconds(work, steps) for name, work in works.items()} for _ in range(turns)]
    rows = []
    for name in names:
        ratios = [turn[name] / turn[RELU] for turn in times]
        row = {"net": net, "mode": mode, "activation": name}
        row |= {"batch": setting.batch, "precision": setting.precision}
        row |= {"pixels": PIXELS["nin"] if net == "nin" else setting.pixels}
        row |= spread([1e3 * turn[name] for turn in times], "median_ms", "p20_ms", "p80_ms", 3)
        row |= spread(ratios, "ratio", "ratio_p20", "ratio_p80", 4)
        peak = peaks[name]
        row |= {"peak_mib": "" if peak is None else f"{peak / 2**20:.1f}"}
        rows.append(row | {"turns": turns, "steps": steps})
    works.clear()
    forget(setting.device)
    return rows


def prepare(net: str, activation: str, mode: str, setting: Setting) -> tuple[Work, int | None]:
    """A step after two warm-up calls, and its peak memory in bytes."""
    forget(setting.device)
    before = torch.cuda.memory_allocated() if setting.device.type == "cuda" else 0
    work = training_step(net, activation, mode, setting)
    for _ in range(2):
        work()
    if setting.device.type != "cuda" or "captured" in mode:
        return work, None
    torch.cuda.reset_peak_memory_stats()
    work()
    return work, torch.cuda.max_memory_allocated() - before


def forget(device: torch.device) -> None:
    """Frees memory that is no longer used."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def seconds(work: Work, steps: int) -> float:
    """Seconds a step."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    for _ in range(steps):
        work()
    wait()
    return (time.perf_counter() - began) / steps


def spread(values: list[float], median: str, p20: str, p80: str, digits: int) -> Row:
    fifths = statistics.quantiles(values, n=5, method="inclusive")
    found = {median: statistics.median(values), p20: fifths[0], p80: fifths[3]}
    return {name: f"{value:.{digits}f}" for name, value in found.items()}


def describe(rows: list[Row]) -> None:
    first = rows[0]
    print(
        f"\n{first['net']}, {first['mode']}, batch {first['batch']}, {first['precision']}; "
        f"{first['turns']} turns of {first['steps']} steps"
    )
    print(f"{'activation':18}{'ms/step':>10}{'p20':>10}{'p80':>10}{'ratio':>8}{'MiB':>10}")
    for row in rows:
        times = "".join(f"{row[c]:>10}" for c in ("median_ms", "p20_ms", "p80_ms"))
        ratio = float(row["ratio"])
        print(f"{row['activation']:18}{times}{ratio:8.3f}{row['peak_mib']:>10}", flush=True)


# ---- records ----


def save(rows: list[Row], path: Path, where: dict[str, Any]) -> None:
    """Writes ``rows``, which replace older ones of the same network and mode."""
    here = places.stamp(where)
    measured = {(row["net"], row["mode"]) for row in rows}
    old = [row for row in places.read_csv(path) if (row["net"], row["mode"]) not in measured]
    order = {place: i for i, place in enumerate((n, m) for n in NETS for m in MODES)}
    new = sorted(old + [row | here for row in rows], key=lambda r: order[r["net"], r["mode"]])
    places.write_csv(path, COLUMNS, new)


def tables(folder: Path) -> list[str]:
    """Time and memory of every recorded network and mode, as multiples of in-place relu's."""
    rows = places.read_csv(folder / "step-cuda.csv") or places.read_csv(folder / "step-cpu.csv")
    if not rows:
        return []
    groups: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        place = (row["net"], f"batch {row['batch']}", row["precision"], row["mode"])
        groups.setdefault(place, {})[row["activation"]] = row
    time_table = table("training step, time / relu's", groups, lambda row, relu: row["ratio"])
    weighed = {place: group for place, group in groups.items() if group[RELU]["peak_mib"]}
    memory_table = table(
        "peak memory / relu's",
        weighed,
        lambda row, relu: float(row["peak_mib"]) / float(relu["peak_mib"]),
    )
    first, turns = rows[0], sorted({int(row["turns"]) for row in rows})
    count = f"{turns[0]} to {turns[-1]}" if len(turns) > 1 else str(turns[0])
    note = (
        f"Medians of ratios within a turn, {count} turns; {first['hardware']}, "
        f"torch {first['torch']}."
    )
    return [time_table, *([memory_table] if weighed else []), note]


def table(title: str, groups: dict[tuple[str, ...], dict[str, Row]], ratio) -> str:
    shown = [a for a in ACTIVATIONS[1:] if any(a in group for group in groups.values())]
    lines = [f"| {title} | {' | '.join(shown)} |", "|---|" + "---|" * len(shown)]
    for place, group in groups.items():
        cells = [
            f"{float(ratio(group[name], group[RELU])):.2f}" if name in group else ""
            for name in shown
        ]
        lines.append(f"| {', '.join(place)} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
