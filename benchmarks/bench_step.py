"""What a training step of NIN costs with each activation.

    python benchmarks/bench_step.py                                   # on the CPU
    python benchmarks/bench_step.py --device cuda --precision bf16    # captured steps

Data are random and of CIFAR-10's shape: what is measured is the step that `srelu train` takes. The
activations take turns, a few steps each, so that a machine that slows down slows down for all; the
median and the 20th and 80th percentiles of the time of a step are printed, with the ratio to the
first activation (the median of the ratios within a turn).
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from torch_srelu.lab.activations import activation
from torch_srelu.lab.batches import Batches
from torch_srelu.lab.distributed import Team
from torch_srelu.lab.environment import environment
from torch_srelu.lab.nets import build
from torch_srelu.lab.recipes import recipe
from torch_srelu.lab.seeds import DropoutStream
from torch_srelu.lab.steps import Step, make_optimizer


def make_step(name: str, batch: int, precision: str, device: torch.device) -> Step:
    """A step of ``name`` after its adaptive phase: nothing is frozen."""
    run = recipe("cifar10", name, seed=0, batch=batch, precision=precision)
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(4 * batch, 3, 32, 32, generator=draw).to(device)
    labels = torch.randint(10, (4 * batch,), generator=draw).to(device)
    dropout = DropoutStream(run.seed, device)
    net = build(run.net, name, seed=run.seed, dropout=dropout).to(device)
    if device.type == "cuda":
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = Batches(images, labels, batch, run.seed, flips=False, team=Team())
    optimizer = make_optimizer(net, run)
    return Step(net, optimizer, batches, dropout, run, Team(), capture=device.type == "cuda")


def seconds(step: Step, count: int) -> float:
    """Seconds a step, over ``count`` steps; small ones in learning rate, so that nothing breaks."""
    began = time.perf_counter()
    for i in range(count):
        step.batches.rewind()
        step(i, rate=1e-6)
    step.totals.tolist()  # waits for the device
    return (time.perf_counter() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--activations", default="relu,prelu,srelu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--steps", type=int, help="steps in a turn (1 on a CPU, 50 on a GPU)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    device = torch.device(given.device)
    count = given.steps or (1 if device.type == "cpu" else 50)
    names = given.activations.split(",")
    steps = {}
    for name in names:
        activation(name)
        steps[name] = make_step(name, given.batch, given.precision, device)
        steps[name].batches.begin(0)
        seconds(steps[name], 1)
    turns = [
        {name: seconds(step, count) for name, step in steps.items()} for _ in range(given.turns)
    ]
    where = environment(device)
    print(
        f"nin-cifar10, batch {given.batch}, {given.precision}; {where['hardware']}, "
        f"{where['threads']} threads, torch {where['versions']['torch']}; "
        f"{given.turns} turns of {count} steps"
    )
    print(f"{'activation':14}{'ms/step':>10}{'p20':>10}{'p80':>10}{'ratio':>8}")
    for name in names:
        times = sorted(1e3 * turn[name] for turn in turns)
        ratio = statistics.median(turn[name] / turn[names[0]] for turn in turns)
        p20, p80 = times[len(times) // 5], times[-1 - len(times) // 5]
        print(f"{name:14}{statistics.median(times):10.2f}{p20:10.2f}{p80:10.2f}{ratio:8.3f}")


if __name__ == "__main__":
    main()
