"""Times the training of GoogLeNet and its data pipeline, in images a second.

    python benchmarks/bench_images.py --data FOLDER              # with imagenette in it
    python benchmarks/bench_images.py --data FOLDER --steps 3 --rounds 1 --device cpu

Photographs that fit are decoded once and kept on the device; more of them are decoded by worker
processes while the device trains. Measured are training with kept images, which never waits for
data, training with streamed ones, and the stream alone. The pipeline is no bottleneck where the
second is as fast as the first, which it can be where the third is faster. A round is an epoch, or
`--steps` of it, after its first step; rates are medians over the rounds, with the lowest and the
highest. They are written to images-<device>.csv in runs/bench, with --record in benchmarks/results.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch

import places
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.data.datasets import dataset
from torch_srelu.lab.data.locations import locate
from torch_srelu.lab.paper.row_recipes import SYSTEMS
from torch_srelu.lab.records.collect_env import environment
from torch_srelu.lab.runtime.distributed import ProcessGroup, choose_device
from torch_srelu.lab.training import pipeline
from torch_srelu.lab.training.loop import algorithms
from torch_srelu.lab.training.trainer import Trainer

COLUMNS = (
    *("what", "activation", "images_per_s", "lowest", "highest", "rounds", "steps", "batch"),
    *("workers", *places.STAMP),
)
KEPT, STREAMED, STREAM = "training, kept", "training, streamed", "stream alone"
LEARNING_RATE = 1e-6  # so small that nothing breaks
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    given = parse(arguments)
    where = environment(given.device)
    print(f"{where['hardware']}, {where['threads']} threads; torch {where['versions']['torch']}")
    here = places.stamp(where)
    path = places.chosen(given) / f"images-{given.device.type}.csv"
    first, *others = given.activations
    asked = [(KEPT, first), (STREAMED, first), (STREAM, first)]
    asked += [(what, name) for name in others for what in (KEPT, STREAMED)]
    rows: list[Row] = []
    for what, name in asked:
        rows.append(measure(what, name, given) | here)
        line = "{what:20}{activation:8}{images_per_s:>8} ({lowest} to {highest}) images a second"
        print(line.format(**rows[-1]), flush=True)
        places.write_csv(path, COLUMNS, rows)  # compiling takes minutes: keep what is measured


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with imagenette in it")
    names = ("relu", "prelu", "srelu")
    parser.add_argument("--activations", nargs="+", choices=names, default=["relu", "srelu"])
    parser.add_argument("--steps", type=int, help="of a round; else a whole epoch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", help="else a GPU if there is one")
    places.add_options(parser)
    given = parser.parse_args(arguments)
    if given.rounds < 1 or (given.steps is not None and given.steps < 2):
        parser.error("--rounds must be at least 1, and --steps at least 2: the first is not timed")
    try:
        given.device = choose_device(given.device)
        locate(dataset("imagenette"), given.data)
    except ValueError as error:
        parser.error(str(error))
    return given


def measure(what: str, name: str, given: argparse.Namespace) -> Row:
    """The rates of one kind of work."""
    run = SYSTEMS["googlenet" if name == "relu" else f"googlenet+{name}"]("imagenet", 1)
    with algorithms(run, given.device), ExitStack() as stack:
        session = opened(run, what != KEPT, given)
        stack.enter_context(closing(session.batches))
        steps = min(given.steps or session.steps, session.steps) - 1
        rates = [rate(session, what == STREAM, epoch, steps) for epoch in range(given.rounds)]
        workers = getattr(session.source, "workers", 0)
    found = {"images_per_s": statistics.median(rates), "lowest": min(rates), "highest": max(rates)}
    row: Row = {"what": what, "activation": "" if what == STREAM else name}
    row |= {key: f"{value:.0f}" for key, value in found.items()}
    row |= {"rounds": given.rounds, "steps": steps, "batch": run.batch}
    return row | {"workers": 0 if what == KEPT else workers}


def opened(run: Run, streamed: bool, given: argparse.Namespace) -> Trainer:
    """A run before its first step, with images kept on the device or streamed."""
    usual = pipeline.RESIDENT_BYTES
    pipeline.RESIDENT_BYTES = 0 if streamed else usual
    cuda = given.device.type == "cuda"
    try:
        return Trainer(run, given.data, given.device, ProcessGroup(), capture=cuda, compiled=cuda)
    finally:
        pipeline.RESIDENT_BYTES = usual


def rate(session: Trainer, alone: bool, epoch: int, steps: int) -> float:
    """Images a second over ``steps`` steps of an epoch, after its first one."""
    step, batches = session.training_step, session.batches

    def go(number: int) -> None:
        if alone:
            batches.advance()
        else:
            step(number, LEARNING_RATE)

    batches.begin(epoch) if alone else step.begin_epoch(epoch)
    go(0)  # starts the workers, captures the step
    wait(session.device)
    began = time.perf_counter()
    for number in range(1, steps + 1):
        go(number)
    wait(session.device)
    return steps * session.run.batch / (time.perf_counter() - began)


def tables(folder: Path) -> list[str]:
    """The recorded rates of every kind of work, with the lowest and the highest."""
    rows = places.read_csv(folder / "images-cuda.csv") or places.read_csv(folder / "images-cpu.csv")
    if not rows:
        return []
    names = list(dict.fromkeys(row["activation"] for row in rows if row["activation"]))
    found = {(row["what"], row["activation"]): row for row in rows}
    lines = [f"| images a second | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for what in dict.fromkeys(row["what"] for row in rows):
        of = ["", *names[1:]] if what == STREAM else names  # the stream alone has no network
        shown = [found.get((what, name)) for name in of]
        form = "{images_per_s} ({lowest} to {highest})"
        lines.append(f"| {what} | {' | '.join(form.format(**r) if r else '' for r in shown)} |")
    first = rows[0]
    steps = f"{first['rounds']} rounds of {first['steps']} steps"
    workers = max(int(row["workers"]) for row in rows)
    note = (
        f"Medians of {steps}, batch {first['batch']}; {workers} worker processes; "
        f"{first['hardware']}, torch {first['torch']}."
    )
    return ["\n".join(lines), note]


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
