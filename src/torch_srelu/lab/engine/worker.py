"""``python -m torch_srelu.lab.engine.worker``: one run, for `local_processes`.

The order is a line of JSON on the standard input, progress are lines of JSON on the standard
output, and what goes wrong is on the standard error. SIGTERM or SIGINT ends the run at its next
step, with a checkpoint; so does a standard output that nobody reads any more.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

DONE, STOPPED = 0, 75  # exit codes; any other is a failure


class _Switch:
    """Whether the run was told to stop, by a signal or because its starter is gone."""

    def __init__(self) -> None:
        self.off = False
        # Whatever else is printed goes to the log: the starter expects lines of ours alone.
        self.out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._turn)

    def _turn(self, *_: Any) -> None:
        self.off = True

    def say(self, line: dict[str, Any]) -> None:
        """Writes a line for the starter, or turns off if it cannot be reached."""
        try:
            print(json.dumps(line), file=self.out, flush=True)
        except BrokenPipeError:
            self.off = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())


def main() -> int:
    """Trains the run that is ordered and returns the exit code."""
    switch = _Switch()
    order = json.loads(sys.stdin.readline())
    from ..config.run import Run  # slow to import: the switch comes first
    from ..training.callbacks import Progress, Stopped
    from ..training.loop import train

    def report(progress: Progress) -> None:
        loss = progress.metrics.train_loss if progress.metrics else None
        switch.say({"epoch": progress.epoch, "share": progress.share, "loss": loss})

    try:
        record = train(
            Run.from_dict(order["run"]),
            order["records"],
            order["data"],
            on_epoch=report,
            on_step=report,
            device=order["device"],
            stop=lambda: switch.off,
            beside=order["beside"],
        )
    except Stopped:
        return STOPPED
    switch.say({"folder": str(record.folder)})
    return DONE


if __name__ == "__main__":
    sys.exit(main())
