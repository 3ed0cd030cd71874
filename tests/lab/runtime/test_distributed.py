"""Two processes under torchrun against one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sharing
import torch

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.records import checkpoints, run_record
from torch_srelu.lab.training.loop import train

HERE = Path(__file__).parents[1]


def test_processes_that_were_not_started_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="torchrun --nproc-per-node 2"):
        train(recipe("digits", "relu", 1, world=2), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_train_the_network_of_one(tmp_path):
    _torchrun(2, HERE / "sharing.py", tmp_path)
    assert [(tmp_path / f"{r}.txt").read_text() for r in (0, 1)] == ["gone", "gone"]
    alone = sharing.trained(world=1)
    first, second = (torch.load(tmp_path / f"{r}.pt", weights_only=True) for r in (0, 1))
    for name, value in alone.net.state_dict().items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-3, atol=1e-4)
    (record,) = run_record.find(tmp_path / "records")
    state = checkpoints.load(record.folder)
    assert state is not None
    assert all(torch.equal(value, first[name]) for name, value in state["net"].items())
    for one, two in zip(alone.history.metrics, record.metrics, strict=True):
        assert two.train_loss == pytest.approx(one.train_loss, rel=1e-4)
        assert two.train_error == pytest.approx(one.train_error, abs=2 / 1198)
        assert two.grad_norm == pytest.approx(one.grad_norm, rel=1e-3)


def _torchrun(processes: int, script: Path, *arguments: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(script)]
    with subprocess.Popen(
        [*command, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as started:
        try:
            output, _ = started.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            started.terminate()  # and torchrun ends its workers
            raise
    assert started.returncode == 0, output
