"""Trains a small run in child processes that are killed at random moments, until it is finished.

    python killing.py RECORDS KILLS SECONDS

Every child is a fork of this process, which has imported everything and computed nothing: being
killed and started again costs milliseconds. SECONDS is what the run takes undisturbed.
"""

import os
import random
import signal
import sys
import time

import torch

from torch_srelu.lab.recipes import recipe
from torch_srelu.lab.train import train

RUN = recipe("digits", "srelu", 1, epochs=3, freeze=1, batch=64, validation=0.2, ema=0.9)


def main(root: str, kills: int, seconds: float) -> None:
    torch.set_num_threads(1)
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            # Without a pause between checkpoints, many of the moments fall into one.
            train(RUN, root, checkpoint_seconds=0.0)
            os._exit(0)
        if killed == kills:
            break
        # Each child gets far enough to make some progress and not far enough to finish.
        time.sleep(random.uniform(0.02, 2.5 * seconds / kills))
        finished, _ = os.waitpid(child, os.WNOHANG)
        if finished:
            break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
    if killed == kills:
        os.waitpid(child, 0)
    print(killed)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
