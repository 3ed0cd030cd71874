"""The command line under test: called in this process, or as a process of its own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

from torch_srelu.lab.cli import app

SOURCE = Path(__file__).parents[2] / "src"


def srelu(line: str) -> Result:
    """The command ``srelu <line>`` in this process; a fault of the program raises."""
    result = CliRunner().invoke(app, shlex.split(line))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Starts a Python of its own that finds the package where this one does."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        # tests that run in the background have Ctrl-C switched off, and would pass that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
