"""`srelu compare` and `srelu train`: what they train, show and leave behind, and how they end."""

from __future__ import annotations

import io
import math
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import process, srelu
from rich.console import Console
from specimens import record_of, specimen

from torch_srelu.lab.analysis.comparison import rival_names
from torch_srelu.lab.cli import compare_train_commands
from torch_srelu.lab.cli.progress_board import Board, shown
from torch_srelu.lab.cli.run_arguments import chosen_runs, parse_settings
from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.engine.scheduling import Event, progress_event
from torch_srelu.lab.records import archives, run_record
from torch_srelu.lab.records.locks import LOCK
from torch_srelu.lab.training.callbacks import Progress
from torch_srelu.lab.util import files

QUICK = "--epochs 2"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_compare_trains_prints_and_reports(tmp_path: Path) -> None:
    line = f"compare prelu srelu --baseline prelu --seeds 1 {QUICK} --records here"
    first = srelu(line)
    assert first.exit_code == 0
    assert "Test error minus that of prelu" in first.output
    assert first.output.splitlines()[-1] == f"Report: {Path('here/report.html')}"
    assert (tmp_path / "here/report.html").stat().st_size > 1_000_000
    folders = sorted((tmp_path / "here").glob("*/run.json"))
    assert [run_record.load(f.parent).run.activation for f in folders] == ["prelu", "srelu"]
    written = {f: f.read_bytes() for f in (tmp_path / "here").rglob("*") if f.is_file()}
    again = srelu(line)
    assert again.exit_code == 0
    assert again.output.count("finished before") == 2
    assert {f: f.read_bytes() for f in written} == written  # not trained, and the same page


def test_train_keeps_a_record_and_tensorboard_events(tmp_path: Path) -> None:
    result = srelu(f"train lrelu:slope=0.3 --seed 7 {QUICK} --tensorboard")
    (folder,) = (f.parent for f in (tmp_path / "runs").glob("*/run.json"))
    assert result.output.splitlines()[-1] == f"Record: runs/{folder.name}"
    record = run_record.load(folder)
    assert (record.run.seed, record.run.options) == (7, {"slope": 0.3})
    assert losses(folder) == [(m.epoch, pytest.approx(m.train_loss)) for m in record.metrics]


def test_a_run_that_was_finished_before_still_gets_tensorboard_events(tmp_path: Path) -> None:
    record = record_of(tmp_path / "runs", recipe("digits", "relu", seed=1))
    for _ in range(2):  # what was written is not written again
        assert "finished before" in srelu("train relu --tensorboard").output
        expected = [(m.epoch, pytest.approx(m.train_loss)) for m in record.metrics]
        assert losses(record.folder) == expected


def test_a_record_that_cannot_take_tensorboard_events_is_finished_all_the_same(
    tmp_path: Path,
) -> None:
    record = record_of(tmp_path / "elsewhere", recipe("digits", "relu", seed=1))
    archives.collect([record], tmp_path / "runs")
    result = srelu("train relu --tensorboard")
    assert result.exit_code == 0
    assert "finished before" in result.output
    assert "No events for TensorBoard beside" in result.output


def losses(folder: Path) -> list[tuple[int, float]]:
    """The training loss by epoch, as TensorBoard reads it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return [(e.step, e.value) for e in events.Scalars("train_loss")]


def test_variants_and_their_baseline_are_named_as_typed(tmp_path: Path) -> None:
    line = "compare srelu:quantile=0.8 srelu:quantile=0.9 --baseline srelu:quantile=0.9"
    result = srelu(f"{line} --seeds 1 {QUICK} --report runs/q.html")  # in a folder to be made
    assert "Test error minus that of srelu:quantile=0.9" in result.output
    assert (tmp_path / "runs/q.html").exists()
    quantiles = [r.run.quantile for r in run_record.find(tmp_path / "runs")]
    assert sorted(quantiles) == [0.8, 0.9]


def test_a_run_that_another_process_trains(tmp_path: Path) -> None:
    run = recipe("digits", "relu", seed=1, epochs=2)
    folder = run_record.create(tmp_path / "runs", run, {}).folder
    with files.locked(folder / LOCK):
        result = srelu(f"train relu {QUICK}")
    assert result.exit_code == 1
    assert "another process is training this run" in result.stderr


@pytest.mark.filterwarnings("always::torch_srelu.lab.records.checkpoints.CheckpointWarning")
def test_a_damaged_checkpoint_is_said_in_a_sentence(tmp_path: Path) -> None:
    run = recipe("digits", "relu", seed=1, epochs=2)
    folder = run_record.create(tmp_path / "runs", run, {}).folder
    (folder / "checkpoint.pt").write_bytes(b"cut short")
    result = srelu(f"train relu {QUICK}")
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("srelu: ")
    assert "training begins anew" in result.stderr


def test_settings_reach_the_rivals_they_mean_something_to() -> None:
    settings = parse_settings(["quantile=0.8", "freeze=3", "lr=0.02"])
    typed = ["relu", "srelu-manual", "srelu", "srelu:quantile=0.5"]
    runs = chosen_runs(typed, [1], "digits", settings)
    assert [run.quantile for run in runs] == [0.9, 0.9, 0.8, 0.5]  # srelu-manual measures nothing
    assert [run.freeze for run in runs] == [0, 0, 3, 3]
    assert {run.lr for run in runs} == {0.02}


@pytest.mark.parametrize("typed", ['["t_r","a_r"]', "[t_r, a_r]", "t_r,a_r"])
def test_a_list_of_names_needs_neither_quotes_nor_brackets(typed: str) -> None:
    assert parse_settings([f"fixed={typed}"]) == {"fixed": ["t_r", "a_r"]}
    (run,) = chosen_runs([f"srelu:a_l=0.1,fixed={typed},quantile=0.8"], [1], "digits", {})
    assert (run.options, run.fixed, run.quantile) == ({"a_l": 0.1}, ("t_r", "a_r"), 0.8)


def test_a_rival_can_be_typed_as_tables_name_it() -> None:
    typed = ["srelu", "srelu:fixed=t_r,a_r", "srelu:a_l=0.1,fixed=t_r", "lrelu:slope=1"]
    runs = chosen_runs(typed, [1], "digits", {})
    assert chosen_runs(rival_names(runs), [1], "digits", {}) == runs


def test_settings_may_be_typed_with_blanks_and_a_comma_too_many() -> None:
    (run,) = chosen_runs(["srelu:a_l=0.1, quantile=0.8,"], [1], "digits", {})
    assert (run.options, run.quantile) == ({"a_l": 0.1}, 0.8)


def test_all_rivals_of_a_seed_come_before_the_next_seed() -> None:
    runs = chosen_runs(["relu", "srelu"], [1, 2], "digits", {})
    order = [(run.seed, run.activation) for run in runs]
    assert order == [(1, "relu"), (1, "srelu"), (2, "relu"), (2, "srelu")]


def test_interrupted_it_says_how_to_go_on(tmp_path: Path) -> None:
    line = f"train relu --records {tmp_path} --epochs 20"  # long enough to be met alive
    child = process("-m", "torch_srelu", *shlex.split(line), cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/run.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err == (
        "Stopping after this step; Ctrl-C once more stops at once.\n"
        "Stopped with 0 of 1 run finished. The same command goes on from there.\n"
    )
    assert len(list(tmp_path.glob("*/checkpoint.pt"))) == 1
    assert srelu(line).exit_code == 0
    (record,) = run_record.find(tmp_path)  # it went on in the same folder
    assert record.result is not None


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C reaches these tests, also where they run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_the_first_ctrl_c_asks_and_a_repeated_key_counts_once(capsys, monkeypatch) -> None:
    monkeypatch.setattr(
        compare_train_commands, "_REPEAT_SECONDS", math.inf
    )  # however slow this machine is
    with compare_train_commands._stop_on_interrupt() as stop:
        assert stop is not None
        assert not stop()
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        assert stop()
    assert capsys.readouterr().err.count("Stopping after this step") == 1


@pytest.mark.parametrize("why", ["several processes", "ignored"])
def test_ctrl_c_is_left_alone_where_training_cannot_stop_at_a_step(why: str, monkeypatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if why == "ignored" else signal.SIG_DFL)
    if why == "several processes":
        monkeypatch.setenv("WORLD_SIZE", "2")
    try:
        handler = signal.getsignal(signal.SIGINT)
        with compare_train_commands._stop_on_interrupt() as stop:
            assert stop is None
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """Two runs that are done, and one that is half done."""
    done = [specimen(tmp_path, "relu", 1, range(3)), specimen(tmp_path, "relu", 2, status="dead")]
    half = specimen(tmp_path, "srelu", 1, status=None)
    board = Board(["relu", "relu", "srelu"], [r.run for r in (*done, half)])
    for record in done:
        board.update(Event(record.run, "ended", 1.0, record=record))
    assert board.status() == "2 of 3 runs"  # nothing was trained yet
    for share in (0.25, 0.5):
        progress = Progress(half.run, half.folder, 2, share, "frozen", half.metrics[1], False)
        board.update(progress_event(progress))
    return board


def test_board_shows_runs_by_rival_and_seed(board: Board) -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(board)
    lines = output.getvalue().splitlines()
    assert lines[0].split() == ["test", "error", "%", "seed", "1", "seed", "2"]
    assert lines[2].split() == ["relu", "1.50", "dead"]
    assert lines[3].split() == ["srelu", "50%"]
    assert "2 of 3 runs, about" in lines[5]
    assert lines[6].strip() == "srelu, seed 1: 2 of 4 epochs (50%), frozen, training loss 1.1000"


def test_board_is_live_on_a_terminal_and_lines_elsewhere(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch_srelu.lab.cli.progress_board.QUIET_SECONDS", 0)
    (now,) = board.running.values()
    for terminal in (True, False):
        output = io.StringIO()
        console = Console(file=output, force_terminal=terminal, width=80)
        with shown(board, console) as update:
            update(now)
        text = output.getvalue()
        assert ("seed 2" in text) == terminal  # the table's heading
        assert ("\x1b" in text) == terminal
        assert "srelu, seed 1: 2 of 4 epochs" in text
