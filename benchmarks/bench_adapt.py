"""What `adapt` costs, in epochs of training: NIN for CIFAR-10, random images.

    python benchmarks/bench_adapt.py                        # on a GPU if there is one
    python benchmarks/bench_adapt.py --device cpu --images 512 --precision float32

In each round an epoch (the step that `srelu train` takes, captured on a GPU, units frozen as they
are before `adapt`), `adapt`, a forward pass alone, and the scans of a pass alone (the input of each
unit for one batch, looked at once for each batch) take their turn. Printed are the
medians with the smallest and the largest; the ratio is within a round. Time is wall time on a GPU,
processor time on a CPU, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import torch_srelu as ts
from torch_srelu.lab.batches import Batches
from torch_srelu.lab.distributed import Team
from torch_srelu.lab.environment import environment
from torch_srelu.lab.nets import build
from torch_srelu.lab.recipes import recipe
from torch_srelu.lab.seeds import DropoutStream
from torch_srelu.lab.sources import EVALUATED
from torch_srelu.lab.steps import Step, forward, make_optimizer
from torch_srelu.quantile import QuantileSearch

BATCH = 128  # of the training


class Bench:
    """One network and random images, with everything that is to be timed."""

    def __init__(self, images: int, precision: str, device: torch.device) -> None:
        run = recipe("cifar10", "srelu", seed=0, batch=BATCH, precision=precision)
        draw = torch.Generator(device).manual_seed(0)
        data = torch.randn(images, 3, 32, 32, generator=draw, device=device)
        labels = torch.randint(10, (images,), generator=draw, device=device)
        dropout = DropoutStream(run.seed, device)
        net = build(run.net, run.activation, seed=run.seed, dropout=dropout).to(device)
        if device.type == "cuda":
            net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        batches = Batches(data, labels, BATCH, run.seed, flips=False, team=Team())
        optimizer, capture = make_optimizer(net, run), device.type == "cuda"
        self.step = Step(net, optimizer, batches, dropout, run, Team(), capture, capture)
        self.net, self.device, self.steps = net, device, batches.steps
        self.batches = data.split(EVALUATED)
        self.calls = 0

    def freeze(self) -> None:
        """As training is before `adapt`; takes the step that captures all others."""
        self.init = ts.AdaptiveInit(self.net, self.step.optimizer)
        self.step.forget_graph()
        self.train(1)

    def train(self, steps: int) -> None:
        """The first steps of an epoch; so small that nothing breaks."""
        self.step.begin_epoch(0)
        for number in range(steps):
            self.step(number, rate=1e-6)

    def forward(self, net: nn.Module, batch: Tensor) -> Tensor:
        self.calls += 1
        return forward(net, batch, self.step.run)

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

        def look(unit: nn.Module, args: tuple[Tensor, ...]) -> None:
            search = QuantileSearch(args[0].shape[1], 0.9, device=self.device)
            search.probe(args[0])
            search.start()
            found.append((search, args[0]))

        units = [module for module in self.net.modules() if isinstance(module, ts.SReLU)]
        hooks = [unit.register_forward_pre_hook(look) for unit in units]
        self.forward(self.net.eval(), self.batches[0])
        self.net.train()
        for hook in hooks:
            hook.remove()
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
        """Peak of GPU memory above what was held before, in MB."""
        self.wait()
        held = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        work()
        self.wait()
        return (torch.cuda.max_memory_allocated(self.device) - held) / 1e6

    def round(self) -> dict[str, float]:
        """Seconds of everything, once."""
        self.freeze()
        times = {
            "epoch": self.seconds(lambda: self.train(self.steps)),
            "adapt": self.seconds(self.adapt),
            "forward": self.seconds(self.forwards),
        }
        searches = self.searches()

        def scans() -> None:
            for _ in self.batches:
                for search, x in searches:
                    search.update(x)

        return {**times, "scans": self.seconds(scans)}


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):8.3f}   ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="bf16")
    given = parser.parse_args()
    bench = Bench(given.images, given.precision, torch.device(given.device))
    first = bench.round()
    rounds = [bench.round() for _ in range(given.rounds)]
    where, passes = environment(bench.device), bench.passes
    print(
        f"nin-cifar10, {given.images} random images, {given.precision}; {where['hardware']}, "
        f"{where['threads']} threads, torch {where['versions']['torch']}; "
        f"median of {given.rounds} rounds (smallest to largest)"
    )
    texts = {
        "epoch": f"an epoch of {bench.steps} steps at batch {BATCH}",
        "forward": f"one forward pass in {len(bench.batches)} batches, nothing measured",
        "scans": "the scans of one pass, nothing else",
        "adapt": f"adapt, {passes} {'pass' if passes == 1 else 'passes'}",
    }
    lines = {text: f"{spread([r[name] for r in rounds])} s" for name, text in texts.items()}
    lines["adapt / epoch"] = spread([r["adapt"] / r["epoch"] for r in rounds])
    lines["the first adapt, which waits for compilers"] = f"{first['adapt']:8.3f} s"
    if bench.device.type == "cuda":
        bench.freeze()
        for name, work in (("forward pass", bench.forwards), ("adapt", bench.adapt)):
            lines[f"peak extra memory: {name}"] = f"{bench.extra_memory(work):8.0f} MB"
    for text, numbers in lines.items():
        print(f"{text:48} {numbers}")


if __name__ == "__main__":
    main()
