"""`srelu paper run` says which of the numbers it prints it has not just trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import srelu
from reproduction import ended

from torch_srelu.lab.paper.experiments import required_runs, select_experiments

RUN = "paper run headline-cifar10 --minutes 0"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_committed_records_are_told_from_those_trained_here(results: Path) -> None:
    said = srelu(f"{RUN} --results {results}").output
    assert f"From the committed records in {results}, not trained now: 9 of 9 runs." in said
    assert "--results nothing" in said
    ended(Path("runs"), required_runs(select_experiments(["headline-cifar10"]), {})[0])
    assert "not trained now: 8 of 9 runs" in srelu(f"{RUN} --results {results}").output


def test_what_is_said_to_train_them_anyway_does(results: Path) -> None:
    said = srelu(f"{RUN} --results nothing").output
    assert "not trained" not in said
    assert "9 runs left" in said


def test_collect_says_why_there_is_nothing_to_collect(results: Path) -> None:
    srelu(f"{RUN} --results {results}")
    refused = srelu(f"paper collect headline-cifar10 --results {results}")
    assert refused.exit_code == 1
    said = " ".join(refused.output.split())
    assert "no records in runs" in said
    assert f"those in {results} are collected already" in said
