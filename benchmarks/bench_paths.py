"""What each special code path of the operator buys: the same training step with and without it.

    python benchmarks/bench_paths.py                        # all groups that fit this machine
    python benchmarks/bench_paths.py --groups eager adapt

Every variant runs in a process of its own, which turns its paths off before the first call. All
processes of a group exist at the same time and take turns, a few steps each, so that a machine that
slows down slows down for all; while one works the others wait. A ratio is the median over turns of
the ratio to the variant with all paths on. Written with percentiles, hardware and versions to
paths-<device>.csv in runs/bench, with --record in benchmarks/results.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import places
from torch_srelu.lab.records.collect_env import environment

if TYPE_CHECKING:
    from torch_srelu.ops.layout import ChannelView
    from torch_srelu.ops.triton.triton_tiling import Tiling

COLUMNS = (
    *("group", "work", "without", "median_ms", "p20_ms", "p80_ms", "ratio", "ratio_p20"),
    *("ratio_p80", "turns", "steps", *places.STAMP),
)
SPANS = (
    (128, 65, 111, 111),
    *((64, 48 + 16 * i, s, s) for i, s in enumerate((37, 53, 83, 45, 129))),
)


class Group(NamedTuple):
    """Works that are measured, each with these sets of paths turned off."""

    works: tuple[str, ...]
    without: tuple[str, ...]  # names of OFF, joined by "+"
    turns: int
    turn_s: float


GROUPS = {
    "eager": Group(
        ("resnet50 eager 32", "vit_s eager 64", "nin eager 128"),
        ("C launches", "signatures", "C launches+signatures"),
        12,
        0.4,
    ),
    "compiled": Group(
        ("resnet50 compiled+captured 256",),
        ("gradient sums", "fused batch norm", "gradient sums+fused batch norm"),
        12,
        0.4,
    ),
    "adapt": Group(("adapt",), ("Triton scan",), 5, 0),
    "spans": Group(
        tuple(
            f"operator {'x'.join(map(str, shape))} {dtype}"
            for shape in SPANS
            for dtype in ("bfloat16", "float32")
        ),
        ("spans",),
        15,
        0.02,
    ),
    "cpu": Group(("resnet18 inference 1",), ("signatures",), 30, 0.3),
}


# ---- turning paths off, in a process of its own ----


def _replace(module: str, name: str, value: Any) -> None:
    owner = importlib.import_module(f"torch_srelu.{module}")
    getattr(owner, name)  # a path that was renamed is an error, not a path that stays on
    setattr(owner, name, value)


def _off_c_launches() -> None:
    _replace("ops.triton.triton_launch", "_launch", None)
    importlib.import_module("torch_srelu.ops.triton.triton_launch")._driver.cache_clear()


def _off_signatures() -> None:
    _replace("_torch_compat", "_TensorGuards", None)


def _off_sums() -> None:
    _replace("ops.inductor.inductor_patterns", "_is_sum_of_two_in_memory", lambda grad: False)


def _off_batch_norm() -> None:
    _replace("ops.inductor.inductor_patterns", "find_batch_norm", lambda *_: None)


def _off_scan() -> None:
    _replace("ops.key_statistics", "backends", SimpleNamespace(select=lambda x: None))


def _off_spans() -> None:
    from torch_srelu.ops.triton.triton_tiling import columns_tiling, forward_columns_block

    def columns(view: ChannelView, dtype: torch.dtype) -> Tiling:
        return columns_tiling(view, forward_columns_block(dtype))

    _replace("ops.triton.triton_tiling", "spans_tiling", columns)


OFF: dict[str, Callable[[], None]] = {
    "C launches": _off_c_launches,
    "signatures": _off_signatures,
    "gradient sums": _off_sums,
    "fused batch norm": _off_batch_norm,
    "Triton scan": _off_scan,
    "spans": _off_spans,
}


# ---- the worker ----


def serve(work: str, without: str) -> None:
    """Reads numbers of steps, answers with seconds a step."""
    for name in filter(None, without.split("+")):
        OFF[name]()
    timed = prepare(work)
    for line in sys.stdin:
        print(f"took {timed(int(line))!r}", flush=True)


def prepare(work: str) -> Callable[[int], float]:
    """A function that takes so many steps and tells the seconds of one."""
    kind, *rest = work.split()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    if kind == "adapt":
        from bench_adapt import Bench

        bench = Bench(50_000, "bf16", device)

        def adapt(steps: int) -> float:
            bench.freeze()
            return bench.seconds(bench.adapt)

        return adapt
    if kind == "operator":
        step = _operator(rest[0], rest[1], device)
    elif rest[0] == "inference":
        step = _inference(device)
    else:
        from training_steps import Setting, training_step

        mode, batch = rest
        setting = Setting(device, int(batch), "bf16" if device.type == "cuda" else "float32", 224)
        step = training_step(kind, "srelu", mode, setting)
    for _ in range(3):
        step()

    def timed(steps: int) -> float:
        wait()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        return (time.perf_counter() - began) / steps

    return timed


def _operator(shape: str, dtype: str, device: torch.device) -> Callable[[], object]:
    """The forward pass on a tensor of odd size, as a graph of ten calls."""
    from torch_srelu import SReLU
    from torch_srelu.lab.runtime.cuda_graphs import capture_graph

    x = torch.randn(*map(int, shape.split("x")), device=device, dtype=getattr(torch, dtype))
    unit = SReLU(x.shape[1], device=device)

    @torch.no_grad()
    def calls() -> None:
        for _ in range(10):
            unit(x)

    return capture_graph(calls).replay


def _inference(device: torch.device) -> Callable[[], object]:
    """ResNet-18 on one image."""
    with contextlib.suppress(ImportError):
        import missing_operators  # type: ignore # noqa: F401  # beside a torch without CUDA, with tests/ in the path
    from torchvision.models import resnet18

    from torch_srelu import convert

    net, image = convert(resnet18()).eval().to(device), torch.randn(1, 3, 224, 224, device=device)

    def step() -> None:
        with torch.inference_mode():
            net(image)

    return step


# ---- the driver ----


class Worker:
    """A process with one variant of one work."""

    def __init__(self, work: str, without: str) -> None:
        here = Path(__file__)
        environ = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        command = [sys.executable, str(here), "--worker", work, without]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environ, cwd=here.parent.parent
        )

    def seconds(self, steps: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(steps, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("took "):
                return float(line[5:])
        raise RuntimeError(f"the worker ended with exit code {self.process.wait()}")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(name: str, group: Group) -> list[dict[str, Any]]:
    """One row for each work and each set of paths that is off."""
    variants = ("", *group.without)
    workers = {work: {off: Worker(work, off) for off in variants} for work in group.works}
    rows = []
    for work, of_work in workers.items():
        try:
            for worker in of_work.values():
                worker.seconds(1)  # waits until all are ready
            once = of_work[""].seconds(3)
            steps = max(1, round(group.turn_s / once))
            turns = [
                {off: worker.seconds(steps) for off, worker in of_work.items()}
                for _ in range(group.turns)
            ]
        except RuntimeError as error:
            print(f"{name}: {work}: {error}", flush=True)
            continue
        finally:
            for worker in of_work.values():
                worker.end()
        print(f"\n{name}: {work}; {group.turns} turns of {steps} steps", flush=True)
        for off in variants:
            row: dict[str, Any] = {"group": name, "work": work, "without": off}
            row |= spread([1e3 * turn[off] for turn in turns], "median_ms", "p20_ms", "p80_ms")
            ratios = [turn[off] / turn[""] for turn in turns]
            row |= spread(ratios, "ratio", "ratio_p20", "ratio_p80")
            rows.append(row | {"turns": group.turns, "steps": steps})
            shown = f"without {off}" if off else "all paths"
            times = f"{row['median_ms']:>10} ms  {row['ratio']:>8}"
            print(f"  {shown:50}{times} ({row['ratio_p20']} to {row['ratio_p80']})", flush=True)
    return rows


def spread(values: Sequence[float], *names: str) -> dict[str, str]:
    fifths = statistics.quantiles(values, n=5, method="inclusive")
    found = (statistics.median(values), fifths[0], fifths[3])
    return {name: f"{value:.4f}" for name, value in zip(names, found, strict=True)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cuda = torch.cuda.is_available()
    groups = [name for name in GROUPS if (name == "cpu") is not cuda]
    parser.add_argument("--groups", nargs="+", choices=groups, default=groups)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    places.add_options(parser)
    given = parser.parse_args(arguments)
    if given.worker:
        serve(*given.worker)
        return
    device = torch.device("cuda" if cuda else "cpu")
    here = places.stamp(environment(device))
    path = places.chosen(given) / f"paths-{device.type}.csv"
    for name in given.groups:
        rows = [row | here for row in measure(name, GROUPS[name])]
        others = [row for row in places.read_csv(path) if row["group"] != name]
        places.write_csv(path, COLUMNS, others + rows)


if __name__ == "__main__":
    main()
