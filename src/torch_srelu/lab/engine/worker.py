"""``python -m torch_srelu.lab.engine.worker``: one run, for `local_processes`.

A line of JSON on the standard input says what to train; lines of JSON on the standard output are
the fields of "progress" events; errors are on the standard error. SIGTERM or SIGINT ends the run at
its next step, with a checkpoint; so does a standard output that is closed at the other end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

DONE, STOPPED = 0, 75  # exit codes; any other is a failure


class _Pipe:
    """The pipe to the parent process; also notes whether the run is to be stopped."""

    def __init__(self) -> None:
        self.stopped = False
        # Whatever else is printed goes to the log: the parent expects lines of JSON alone.
        self.out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: Any) -> None:
        self.stopped = True

    def write(self, line: dict[str, Any]) -> None:
        """Writes a line; if nobody can read it any more, the run is to be stopped."""
        try:
            print(json.dumps(line), file=self.out, flush=True)
        except BrokenPipeError:
            self.stopped = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())


def main() -> int:
    """Trains the run that is asked for and returns the exit code."""
    pipe = _Pipe()
    order = json.loads(sys.stdin.readline())
    from ..config.run import Run  # slow to import: signals are handled first
    from ..training.callbacks import Progress, Stopped
    from ..training.loop import train
    from .scheduling import progress_event

    def report(progress: Progress) -> None:
        event = progress_event(progress)
        names = ("share", "epoch", "loss", "phase")
        pipe.write({name: getattr(event, name) for name in names})

    try:
        train(
            Run.from_dict(order["run"]),
            order["records"],
            order["data"],
            on_epoch=report,
            on_step=report,
            device=order["device"],
            stop=lambda: pipe.stopped,
            beside=order["beside"],
        )
    except Stopped:
        return STOPPED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
