"""``python -m torch_srelu.lab.engine.worker``: one run, for `local_processes`.

A line of JSON on the standard input has the arguments of `torch_srelu.lab.training.loop.train`;
lines of JSON on the standard output are the fields of "progress" events; errors are on the standard
error. SIGTERM or SIGINT ends the run at
its next step, with a checkpoint; so does a standard output that is closed at the other end.
"""

from __future__ import annotations

import json
import os
import signal
import sys

DONE, STOPPED = 0, 75  # exit codes; any other is a failure


def main() -> int:
    """Trains the run that is asked for and returns the exit code."""
    stopped: list[bool] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.append(True))
    # Whatever else is printed goes to the log: the parent expects lines of JSON alone.
    parent = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = json.loads(sys.stdin.readline())
    from ..config.run import Run  # slow to import: signals are handled first
    from ..training.callbacks import Progress, Stopped
    from ..training.loop import train
    from .scheduling import progress_event

    def report(progress: Progress) -> None:
        event = progress_event(progress)
        line = {name: getattr(event, name) for name in ("share", "epoch", "loss", "phase")}
        try:
            print(json.dumps(line), file=parent, flush=True)
        except BrokenPipeError:  # the parent is gone
            stopped.append(True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), parent.fileno())

    run = Run.from_dict(order.pop("run"))
    try:
        train(run, **order, on_epoch=report, on_step=report, stop=lambda: bool(stopped))
    except Stopped:
        return STOPPED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
