"""Trains a small run as one of several processes, and saves this process's parameters.

At exit it also notes whether the process group still exists: its threads would outlive it.

torchrun --nproc-per-node 2 sharing.py FOLDER
"""

import atexit
import sys
import weakref
from pathlib import Path

import torch
import torch.distributed as dist

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.runtime.distributed import init_process_group, world_size
from torch_srelu.lab.training.loop import fit, train
from torch_srelu.lab.training.trainer import Trainer

CPU = torch.device("cpu")


def trained(world: int) -> Trainer:
    """A network trained by ``world`` processes."""
    trainer = Trainer(run_of(world), None, CPU, init_process_group(world, CPU), capture=False)
    assert fit(trainer, Path()) == "finished"
    return trainer


def run_of(world: int) -> Run:
    return recipe("digits", "srelu", 1, epochs=2, freeze=1, augmentation="flips", world=world)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    # What is registered first is called last: after the processes have parted.
    atexit.register(lambda: (folder / f"{rank}.txt").write_text("alive" if group() else "gone"))
    trainer = trained(world_size())
    rank, group = trainer.group.rank, weakref.ref(dist.group.WORLD)
    torch.save(trainer.net.state_dict(), folder / f"{rank}.pt")
    train(trainer.run, folder / "records")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
