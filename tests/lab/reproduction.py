"""Records of the reproduction's runs, made to measure."""

from __future__ import annotations

from pathlib import Path

from specimens import record_of

from torch_srelu.lab.config.run import Run
from torch_srelu.lab.models.network_registry import network_spec
from torch_srelu.lab.paper.experiments import required_runs, select_experiments
from torch_srelu.lab.records.run_record import Record

LAYERS = {name: 3 for name, _ in network_spec("nin-cifar10").build("relu").activations()}
# Of 200 images, and the seed more.
WRONG = {"relu": 24, "lrelu": 22, "prelu": 21, "apl": 20, "srelu-manual": 19, "srelu": 18}


def ended(root: Path, run: Run, status: str = "finished") -> Record:
    """A record of the run with a number of errors that tells it from the others."""
    wrong = WRONG[run.activation] + (run.seed if run.activation == "srelu" else 2 * run.seed)
    wrong += 60 if run.dataset == "cifar100" else 0
    return record_of(root, run, range(wrong), status=status, layers=LAYERS, kept=3)


def all_of(root: Path, *blocks: str) -> list[Record]:
    return [ended(root, run) for run in required_runs(select_experiments(blocks), {})]
