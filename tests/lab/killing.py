"""Trains a small run in child processes that are killed at chosen moments, until it is finished.

    python killing.py RECORDS KILLS

Every child is a fork of this process, which has imported everything and computed nothing: being
killed and started again costs milliseconds. A moment is the end of a step, or just before a file
of the record is opened, renamed or removed; which it is comes from a seed, not from a clock.
"""

import os
import random
import signal
import sys

import torch
import torch._dynamo  # what training imports late

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.training.loop import train

RUN = recipe("digits", "srelu", 1, epochs=3, freeze=1, batch=64, validation=0.2, ema=0.9)
MOMENTS = 70  # at most, of some 700 that the run has: ten children do not get to its end


def main(root: str, kills: int) -> None:
    torch.set_num_threads(1)
    draw = random.Random(0)
    for _ in range(kills):
        assert _child(root, draw.randint(1, MOMENTS)) == -signal.SIGKILL
    assert _child(root) == 0


def _child(root: str, moments: int | None = None) -> int:
    """The exit code of a child that trains the run, killed after so many moments."""
    child = os.fork()
    if child == 0:
        passed = 0

        def moment() -> bool:
            nonlocal passed
            passed += 1
            if passed == moments:
                os.kill(os.getpid(), signal.SIGKILL)
            return False

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            files = event in ("open", "os.rename", "os.remove")
            if files and str(arguments[0]).startswith(root):
                moment()

        sys.addaudithook(hook)
        # Without a pause between checkpoints, many of the moments fall into one.
        train(RUN, root, checkpoint_seconds=0.0, stop=moment)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
