"""Trains a small run as one of several processes, and saves this process's parameters.

torchrun --nproc-per-node 2 sharing.py FOLDER
"""

import sys
from pathlib import Path

import torch

from torch_srelu.lab.distributed import team, world_size
from torch_srelu.lab.recipes import recipe
from torch_srelu.lab.session import Session
from torch_srelu.lab.train import train

CPU = torch.device("cpu")


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    world = world_size()
    run = recipe("digits", "srelu", 1, epochs=2, freeze=1, augmentation="flips", world=world)
    with team(world, CPU) as crew:
        session = Session(run, None, CPU, crew, capture=False)
        for _ in range(run.epochs):
            session.train_epoch(lambda: None)
        torch.save(session.net.state_dict(), folder / f"{world}-{crew.rank}.pt")
    train(run, folder / "records")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
