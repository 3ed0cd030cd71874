"""`srelu paper`: tables, runs and their collection, by command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from command import process, srelu
from reproduction import WRONG, ended
from specimens import record_of

from torch_srelu.lab.cli.progress_board import ProgressLines, RunProgress
from torch_srelu.lab.cli.terminal import console
from torch_srelu.lab.engine.local_processes import Event
from torch_srelu.lab.paper.experiments import required_runs, select_experiments
from torch_srelu.lab.paper.row_recipes import ROWS
from torch_srelu.lab.records import run_record

COLLECT = "paper collect headline-cifar10"


@pytest.fixture
def command(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    monkeypatch.chdir(tmp_path)
    return lambda line: srelu(f"{line} --results {results}")


def test_commands_print_tables_and_values(command: Callable) -> None:
    assert "NIN + SReLU" in command("paper table1").output
    everything = command("paper tables").output
    assert [f"Table {n}:" in everything for n in range(1, 6)] == [True] * 5
    values = json.loads(command("paper table4 --json").output)
    assert {e["condition"] for e in values} == {"mnist"}
    assert "PReLU, CIFAR-100" in command("paper differences").output
    assert "Tree based priors" in command("paper rows").output
    assert command("paper figure4 --out f.svg").output == "figure4 is in f.svg\n"


def test_without_a_command_it_prints_all_tables(command: Callable, results: Path) -> None:
    out = command("paper").output
    assert [f"Table {n}:" in out for n in range(1, 6)] == [True] * 5
    assert out.endswith("More: `srelu paper rows`, `srelu paper --help`.\n")
    misplaced = srelu(f"paper --results {results} rows")
    assert misplaced.exit_code == 2
    assert "srelu paper rows --results" in misplaced.output


def test_run_has_nothing_to_do_where_all_is_committed(command: Callable) -> None:
    done = command("paper run headline")
    assert done.exit_code == 0
    assert "nin-cifar10 on cifar10, 100 epochs" in done.output
    left = command("paper run mnist --minutes 0")
    assert left.output.strip() == "9 runs left: the same command goes on from here."


def test_run_lists_every_name_that_it_knows() -> None:
    words = set(re.findall(r"[\w-]+", srelu("paper run").output))
    assert {
        "headline",
        "rehearsal",
        *(experiment.name for experiment in select_experiments()),
    } <= words


def test_lines_count_what_was_there_and_what_has_ended(tmp_path: Path, capsys) -> None:
    chosen = select_experiments(["headline-cifar10"])
    runs = required_runs(chosen, {})
    there = run_record.results(ended(tmp_path, run) for run in runs[:5])
    progress = RunProgress(partial(required_runs, chosen), there)
    view = ProgressLines(progress, console)
    record = ended(tmp_path, runs[5])
    for kind, share in (("started", 0.0), ("progress", 0.25), ("progress", 0.75)):
        view.update(Event(runs[5], kind, share))
    view.update(Event(runs[5], "ended", 1.0, record=record))
    view.update(Event(runs[6], "started"))
    view.update(Event(runs[6], "failed", words="exit code 1, log in here\nand why"))
    view.update(None)
    first, second, third = capsys.readouterr().out.splitlines()
    error = (WRONG["srelu"] + 2) / 2
    assert first.startswith(f"nin-cifar10 srelu seed 2: {error:.2f} % test error, 100 epochs in")
    assert "6 of 9 runs, about" in first
    assert second == "nin-cifar10 relu seed 3: failed, exit code 1, log in here"
    assert third.startswith("and why; 6 of 9 runs")
    assert progress.failed == 1


def test_collect_takes_what_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = required_runs(select_experiments(["headline-cifar10"]), {})
    for run in runs[:4]:
        ended(tmp_path / "runs", run)
    record_of(tmp_path / "runs", runs[4], status=None)
    record_of(tmp_path / "runs", ROWS["nin+relu"]("cifar10", 77))  # of no block
    first = srelu("paper collect headline-cifar10 --results there")
    assert "4 records added, 0 known before" in first.output
    assert "5 runs of headline-cifar10 without a result." in first.output
    assert len(run_record.find(tmp_path / "there")) == 4
    assert "0 records added, 4 known" in srelu("paper collect --results there").output


def test_one_is_counted_in_the_singular(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    *most, last = required_runs(select_experiments(["headline-cifar10"]), {})
    for run in most:
        ended(tmp_path / "runs", run)
    assert "\n1 run of headline-cifar10 without a" in srelu(f"{COLLECT} --results a").output
    left = srelu("paper run headline-cifar10 --minutes 0 --results a").output
    assert left.endswith("\n1 run left: the same command goes on from here.\n")
    ended(tmp_path / "runs", last)
    assert srelu(f"{COLLECT} --results a").output.startswith("1 record added, 8 known before")


def test_tables_need_neither_data_nor_slow_packages() -> None:
    code = (
        "import sys; from torch_srelu.lab.cli import app; app(['paper', 'table2'], "
        "standalone_mode=False); print(sorted({'matplotlib', 'plotly', 'sklearn', 'sympy',"
        " 'torch._inductor'} & sys.modules.keys()))"
    )
    out, _ = process("-c", code).communicate(timeout=60)
    assert out.splitlines()[0].startswith("Table 2: CIFAR-10")
    assert out.splitlines()[-1] == "[]"
