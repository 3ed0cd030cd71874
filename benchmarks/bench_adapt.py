"""Times `adapt` in epochs of training: NIN for CIFAR-10, random images.

    python benchmarks/bench_adapt.py                        # on a GPU if there is one
    python benchmarks/bench_adapt.py --images 512           # enough for a CPU

In each round an epoch (the step that `srelu train` takes, captured on a GPU, units frozen as they
are before `adapt`), `adapt`, a forward pass alone, and the scans of a pass alone (each batch scans
the input of each unit for one batch) are timed one after the other. Printed are the
medians with the smallest and the largest; the ratio is within a round. Time is wall time on a GPU,
processor time on a CPU, which other work on the machine disturbs least.

Everything is written, with hardware and versions, to adapt-<device>.csv in runs/bench, with
--record in benchmarks/results, where the committed ones are.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import places
import torch_srelu as ts
from torch_srelu.adaptive.quantile_search import QuantileSearch
from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.data.batches import TensorBatches
from torch_srelu.lab.models.network_registry import network_spec
from torch_srelu.lab.records.collect_env import environment
from torch_srelu.lab.runtime.distributed import ProcessGroup
from torch_srelu.lab.runtime.seeds import DropoutStream
from torch_srelu.lab.training.pipeline import EVALUATION_BATCH
from torch_srelu.lab.training.step import TrainingStep, forward, make_optimizer

BATCH = 128  # of the training
TIMED = ("epoch_s", "forward_s", "scans_s", "adapt_s")
RATIO = "ratio"  # adapt / epoch
MEMORY = ("forward_mb", "adapt_mb")
COLUMNS = (
    *("images", "precision", "rounds", "passes", "first_adapt_s"),
    *(f"{name}{end}" for name in (*TIMED, RATIO) for end in ("", "_min", "_max")),
    *MEMORY,
    *places.STAMP,
)
Row = Mapping[str, object]


class Bench:
    """One network and random images, with everything that is to be timed."""

    def __init__(self, images: int, precision: str, device: torch.device) -> None:
        run = recipe("cifar10", "srelu", seed=0, batch=BATCH, precision=precision)
        draw = torch.Generator(device).manual_seed(0)
        data = torch.randn(images, 3, 32, 32, generator=draw, device=device)
        labels = torch.randint(10, (images,), generator=draw, device=device)
        dropout = DropoutStream(run.seed, device)
        spec = network_spec(run.net)
        net = spec.build(run.activation, seed=run.seed, dropout=dropout).to(device)
        if device.type == "cuda":
            net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        batches = TensorBatches(data, labels, BATCH, run.seed, flips=False, group=ProcessGroup())
        optimizer, capture = make_optimizer(net, run), device.type == "cuda"
        self.step = TrainingStep(
            net, optimizer, batches, dropout, run, ProcessGroup(), capture, capture
        )
        self.net, self.device, self.steps = net, device, batches.steps
        self.images, self.batches = images, data.split(EVALUATION_BATCH)
        self.calls = 0

    def freeze(self) -> None:
        """Freezes the units as before `adapt`; takes the first step, which is captured."""
        self.init = ts.AdaptiveInit(self.net, self.step.optimizer)
        self.step.reset_graph()
        self.train(1)

    def train(self, steps: int) -> None:
        """The first steps of an epoch, at a rate that changes next to nothing."""
        self.step.begin_epoch(0)
        for number in range(steps):
            self.step(number, rate=1e-6)

    def forward(self, net: nn.Module, batch: Tensor) -> Tensor:
        self.calls += 1
        return forward(net, batch, self.step.run)[0]

    @torch.no_grad()
    def forwards(self) -> None:
        self.net.eval()
        for batch in self.batches:
            self.forward(self.net, batch)
        self.net.train()

    def adapt(self) -> None:
        before = self.calls
        self.init.adapt(self.batches, self.forward)
        self.adapt_calls = self.calls - before

    @property
    def passes(self) -> int:
        """How often the last `adapt` read all data; the first batch it read once more."""
        return (self.adapt_calls - 1) // len(self.batches)

    @torch.no_grad()
    def searches(self) -> list[tuple[QuantileSearch, Tensor]]:
        """A search for each unit, ready for its first pass, and the unit's input for one batch."""
        found: list[tuple[QuantileSearch, Tensor]] = []

        def hook(unit: nn.Module, args: tuple[Tensor, ...]) -> None:
            search = QuantileSearch(args[0].shape[1], 0.9, device=self.device)
            search.probe(args[0])
            search.start()
            found.append((search, args[0]))

        units = [module for module in self.net.modules() if isinstance(module, ts.SReLU)]
        handles = [unit.register_forward_pre_hook(hook) for unit in units]
        self.forward(self.net.eval(), self.batches[0])
        self.net.train()
        for handle in handles:
            handle.remove()
        return found

    def seconds(self, work: Callable[[], object]) -> float:
        """The time of ``work``, until the device has finished."""
        clock = time.perf_counter if self.device.type == "cuda" else time.process_time
        self.wait()
        began = clock()
        work()
        self.wait()
        return clock() - began

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def extra_memory(self, work: Callable[[], object]) -> float:
        """Peak GPU memory above what was allocated before, in MB."""
        self.wait()
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        work()
        self.wait()
        return (torch.cuda.max_memory_allocated(self.device) - before) / 1e6

    def round(self) -> dict[str, float]:
        """Seconds of everything, once."""
        self.freeze()
        times = {
            "epoch_s": self.seconds(lambda: self.train(self.steps)),
            "adapt_s": self.seconds(self.adapt),
            "forward_s": self.seconds(self.forwards),
        }
        searches = self.searches()

        def scans() -> None:
            for _ in self.batches:
                for search, x in searches:
                    search.update(x)

        return {**times, "scans_s": self.seconds(scans)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    cuda = torch.cuda.is_available()
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5, help="at least 3")
    parser.add_argument("--precision", default="bf16" if cuda else "float32")
    places.add_options(parser)
    given = parser.parse_args(arguments)
    if given.rounds < 3:
        parser.error(f"--rounds must be at least 3, or there is no spread; got {given.rounds}")
    if given.images < BATCH:
        parser.error(f"--images must be at least {BATCH}, a batch; got {given.images}")
    device = torch.device("cuda" if cuda else "cpu")
    row = measure(Bench(given.images, given.precision, device), given.rounds)
    describe(row)
    places.write_csv(places.chosen(given) / f"adapt-{device.type}.csv", COLUMNS, [row])


def measure(bench: Bench, rounds: int) -> Row:
    """A row of `COLUMNS`."""
    first = bench.round()
    found = [bench.round() for _ in range(rounds)]
    run = bench.step.run
    row: dict[str, object] = {"images": bench.images, "precision": run.precision, "rounds": rounds}
    row |= {"passes": bench.passes, "first_adapt_s": f"{first['adapt_s']:.3f}"}
    values = {name: [times[name] for times in found] for name in TIMED}
    values[RATIO] = [times["adapt_s"] / times["epoch_s"] for times in found]
    for name, all_of_it in values.items():
        row[name] = f"{statistics.median(all_of_it):.3f}"
        row |= {f"{name}_min": f"{min(all_of_it):.3f}", f"{name}_max": f"{max(all_of_it):.3f}"}
    if bench.device.type == "cuda":
        bench.freeze()
        for name, work in zip(MEMORY, (bench.forwards, bench.adapt), strict=True):
            row[name] = f"{bench.extra_memory(work):.0f}"
    return row | places.stamp(environment(bench.device))


def describe(row: Row) -> None:
    print(
        f"nin-cifar10, {row['images']} random images, {row['precision']}; {row['hardware']}, "
        f"{row['threads']} threads, torch {row['torch']}; "
        f"median of {row['rounds']} rounds (smallest to largest)"
    )
    texts = {
        "epoch_s": f"an epoch at batch {BATCH}",
        "forward_s": "one forward pass, nothing measured",
        "scans_s": "the scans of one pass, nothing else",
        "adapt_s": f"adapt; passes over the images: {row['passes']}",
        RATIO: "adapt / epoch",
    }
    for name, text in texts.items():
        print(f"{text:48} {row[name]:>8} ({row[f'{name}_min']} to {row[f'{name}_max']})")
    print(f"{'the first adapt, which waits for compilers':48} {row['first_adapt_s']:>8}")
    for name, text in zip(MEMORY, ("forward pass", "adapt"), strict=True):
        if name in row:
            print(f"{f'peak extra memory: {text}':48} {row[name]:>8} MB")


def tables(folder: Path) -> list[str]:
    """What adapt takes, as a share of an epoch, wherever it was measured."""
    paths = sorted(folder.glob("adapt-*.csv"), reverse=True)
    rows = [row for path in paths for row in places.read_csv(path)]
    if not rows:
        return []
    lines = [
        "| `adapt` on NIN | time / an epoch's | smallest to largest | passes | peak extra memory |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        memory = f"{row['adapt_mb']} MB" if row["adapt_mb"] else ""
        lines.append(
            f"| {row['images']} images, {row['precision']}, {row['hardware']} | {row[RATIO]} | "
            f"{row[f'{RATIO}_min']} to {row[f'{RATIO}_max']} | {row['passes']} | {memory} |"
        )
    notes = [f"{row['hardware']}, torch {row['torch']}, n = {row['rounds']} rounds" for row in rows]
    return ["\n".join(lines), f"Medians of ratios within a round: {'; '.join(notes)}."]


if __name__ == "__main__":
    main()
