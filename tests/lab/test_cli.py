"""The command line: what it does, says and leaves behind, and how it ends."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import typer
from specimens import specimen
from typer.testing import CliRunner, Result

from torch_srelu import __version__
from torch_srelu.lab import records
from torch_srelu.lab.cli import app
from torch_srelu.lab.cli import board as boards
from torch_srelu.lab.data.registry import DATASETS, Source
from torch_srelu.lab.recipes import recipe

SOURCE = Path(__file__).parents[2] / "src"
COMMANDS = ("compare", "train", "report", "paper", "data", "bench")


@pytest.fixture
def srelu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Calls the command in an empty folder, without data of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SRELU_DATA", raising=False)

    def call(line: str) -> Result:
        result = CliRunner().invoke(app, shlex.split(line))
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


def process(*arguments: str, **options) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# ---- help ------------------------------------------------------------------------------------


def test_help_names_every_command_and_shows_examples(srelu) -> None:
    overview = srelu("--help").output
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", overview)
        assert f"srelu {command}" in srelu(f"{command} --help").output


def test_every_example_in_the_help_is_a_valid_command() -> None:
    group = typer.main.get_command(app)
    seen = set()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for example in re.findall(r"`(.+?)`", command.epilog or ""):
            line = example.partition("-m torch_srelu ")[2] or example.removeprefix("srelu ")
            arguments = shlex.split(line.partition(">")[0])
            assert arguments.pop(0) == name
            context = command.make_context(name, arguments, resilient_parsing=False)
            assert context.info_name == name
            seen.add(name)
    assert seen == set(COMMANDS)


def test_version(srelu) -> None:
    assert srelu("--version").output == f"torch-srelu {__version__}\n"


def test_module_is_the_same_command() -> None:
    out, _ = process("-m", "torch_srelu", "--version").communicate(timeout=60)
    assert out == f"torch-srelu {__version__}\n"


def test_without_the_laboratory_it_says_what_to_install() -> None:
    # A real interpreter in which typer cannot be imported.
    code = "import sys; sys.modules['typer'] = None; from torch_srelu.__main__ import main; main()"
    child = process("-c", code)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert out == ""
    assert err.splitlines() == [
        "srelu needs the package typer, which is not installed: pip install 'torch-srelu[lab]'"
    ]


# ---- compare and train -----------------------------------------------------------------------

QUICK = "--epochs 2"


def test_compare_trains_prints_and_reports(srelu, tmp_path: Path) -> None:
    line = f"compare prelu srelu --baseline prelu --seeds 1 {QUICK} --records here"
    first = srelu(line)
    assert first.exit_code == 0
    assert "Test error minus that of prelu" in first.output
    assert first.output.splitlines()[-1] == f"Report: {Path('here/report.html')}"
    assert (tmp_path / "here/report.html").stat().st_size > 1_000_000
    folders = sorted((tmp_path / "here").glob("*/run.json"))
    assert [records.load(f.parent).run.activation for f in folders] == ["prelu", "srelu"]
    written = {f: f.read_bytes() for f in (tmp_path / "here").rglob("*") if f.is_file()}
    again = srelu(line)
    assert again.exit_code == 0
    assert again.output.count("finished before") == 2
    assert {f: f.read_bytes() for f in written} == written  # not trained, and the same page


def test_train_keeps_a_record_and_tensorboard_events(srelu, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = srelu(f"train lrelu:slope=0.3 --seed 7 {QUICK} --tensorboard")
    (folder,) = (f.parent for f in (tmp_path / "runs").glob("*/run.json"))
    assert result.output.splitlines()[-1] == f"Record: runs/{folder.name}"
    record = records.load(folder)
    assert (record.run.seed, record.run.options) == (7, {"slope": 0.3})
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    losses = [(e.step, e.value) for e in events.Scalars("train_loss")]
    assert losses == [(m.epoch, pytest.approx(m.train_loss)) for m in record.metrics]


def test_variants_and_their_baseline_are_named_as_typed(srelu, tmp_path: Path) -> None:
    line = "compare srelu:quantile=0.8 srelu:quantile=0.9 --baseline srelu:quantile=0.9"
    result = srelu(f"{line} --seeds 1 {QUICK}")
    assert "Test error minus that of srelu:quantile=0.9" in result.output
    quantiles = [r.run.quantile for r in records.find(tmp_path / "runs")]
    assert sorted(quantiles) == [0.8, 0.9]


def test_a_run_that_another_process_trains(srelu, tmp_path: Path) -> None:
    run = recipe("digits", "relu", seed=1, epochs=2)
    folder = records.create(tmp_path / "runs", run, {}).folder
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    result = srelu(f"train relu {QUICK}")
    os.close(handle)
    assert result.exit_code == 1
    assert "another process is training this run" in result.stderr


@pytest.mark.filterwarnings("always::torch_srelu.lab.checkpoints.CheckpointWarning")
def test_a_damaged_checkpoint_is_said_in_a_sentence(srelu, tmp_path: Path) -> None:
    run = recipe("digits", "relu", seed=1, epochs=2)
    folder = records.create(tmp_path / "runs", run, {}).folder
    (folder / "checkpoint.pt").write_bytes(b"cut short")
    result = srelu(f"train relu {QUICK}")
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("srelu: ")
    assert "training begins anew" in result.stderr


def test_srelu_settings_leave_other_rivals_alone(srelu, tmp_path: Path) -> None:
    srelu(f"compare relu srelu --seeds 1 {QUICK} --set quantile=0.8 --set freeze=1")
    runs = {r.run.activation: r.run for r in records.find(tmp_path / "runs")}
    assert (runs["srelu"].quantile, runs["srelu"].freeze) == (0.8, 1)
    assert (runs["relu"].quantile, runs["relu"].freeze) == (0.9, 0)


def test_interrupted_it_says_how_to_go_on(srelu, tmp_path: Path) -> None:
    line = f"train relu --records {tmp_path} {QUICK}"
    child = process("-m", "torch_srelu", *shlex.split(line), cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/run.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err == (
        "Stopped: 0 of 1 runs are finished. The same command goes on from the last checkpoint.\n"
    )
    assert srelu(line).exit_code == 0
    (record,) = records.find(tmp_path)  # it went on in the same folder
    assert record.result is not None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("compare rely", "unknown activation 'rely': did you mean 'relu'? Choose one of relu, "),
        ("compare --dataset mnsit", "unknown dataset 'mnsit': did you mean 'mnist'?"),
        ("compare --net nin-digit", "unknown net 'nin-digit': did you mean 'nin-digits'?"),
        ("compare relu --baseline srelu", "unknown baseline 'srelu'"),
        ("compare lrelu:slop=1", "did you mean 'slope'?"),
        ("compare relu:quantile=0.8", "relu has no options, got quantile=0.8"),
        ("compare lrelu:slope=0.1 lrelu:slope=0.10", "a rival is named twice"),
        ("train srelu --set seed=3", "unknown field of a run 'seed'"),
        ("compare lrelu:slope", "expected NAME=VALUE, got 'slope'"),
        ("train srelu --set momentun=1", "did you mean 'momentum'?"),
        ("train srelu --set lr=fast", "lr must be of type float, got 'fast'"),
        ("train srelu --epochs 3 --set freeze=5", "freeze of 5 epochs leaves nothing of 3 epochs"),
        ("train --dataset mnist", "get it with `srelu data get mnist`"),
        ("report nowhere", "no records in nowhere: train some with `srelu compare`"),
        ("paper figure9", "unknown figure 'figure9'"),
        ("paper figure1 --out a.jpeg", "unknown file type of a.jpeg 'jpeg'"),
        ("paper figure1 --out no/where.png", "No such file or directory"),
        ("bench rely", "unknown provider 'rely': did you mean 'relu'?"),
        ("bench --shape 3", "shape must be at least two sizes like 64x192x32x32, got '3'"),
        ("bench --dtype int8", "unknown dtype 'int8'"),
        ("data get mnsit", "unknown dataset 'mnsit': did you mean 'mnist'?"),
        ("data get digits", "digits needs no download"),
    ],
)
def test_mistakes_are_one_clear_line(srelu, tmp_path: Path, line: str, message: str) -> None:
    result = srelu(line)
    assert result.exit_code == 1
    assert result.stderr.startswith("srelu: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and "cache" not in f.parts]


def test_wrong_usage_has_its_own_exit_code(srelu) -> None:
    assert srelu("compare --seeds 0").exit_code == 2
    assert srelu("no-such-command").exit_code == 2


# ---- report, paper, data ---------------------------------------------------------------------


def test_report_in_every_format(srelu, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        specimen(tmp_path / "runs", "relu", seed, range(seed))
        specimen(tmp_path / "runs", "srelu", seed, range(1))
    text = srelu("report --baseline srelu --out page.html")
    assert "Test error minus that of srelu" in text.output
    assert (tmp_path / "page.html").exists()
    (plain,) = json.loads(srelu("report --format json").output)
    rows = list(csv.DictReader(io.StringIO(srelu("report --format csv").output)))
    assert [row["activation"] for row in rows] == ["relu", "srelu"]
    assert [float(row["error_mean"]) for row in rows] == [1.0, 0.5]
    assert plain["rivals"][0]["error_mean"] == 1.0
    assert "| relu | 1.00 | 0.50 |" in srelu("report --format markdown").output
    assert not (tmp_path / "runs/report.html").exists()


def test_report_of_records_of_another_version(srelu, tmp_path: Path) -> None:
    folder = specimen(tmp_path / "runs", "relu", 1).folder
    plain = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(plain | {"format": 99}))
    result = srelu("report")
    assert result.exit_code == 1
    assert "format 99" in result.stderr


def test_data_says_what_is_there_and_where_it_looked(srelu, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "given/mnist").mkdir(parents=True)
    (tmp_path / "given/mnist/train-images-idx3-ubyte").touch()
    monkeypatch.setenv("SRELU_DATA", "elsewhere")
    lines = " ".join(srelu("data --data given").output.split())
    assert "digits 1 x 8 x 8 10 part of scikit-learn" in lines
    assert "mnist 1 x 28 x 28 10 given/mnist" in lines
    assert "missing: srelu data get cifar10" in lines
    assert "Looked in given, then elsewhere, then" in lines


def test_data_get_downloads_and_says_where(srelu, tmp_path: Path, monkeypatch) -> None:
    content = b"what the publisher offers"
    (tmp_path / "site").mkdir()
    (tmp_path / "site/train-images-idx3-ubyte.gz").write_bytes(content)
    handler = partial(Quiet, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/train-images-idx3-ubyte.gz"
        source = Source(url, hashlib.md5(content).hexdigest())
        monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], sources=(source,)))
        result = srelu("data get mnist --data there")
        server.shutdown()
    assert result.output.splitlines()[-1] == "mnist is in there/mnist"
    assert (tmp_path / "there/mnist/train-images-idx3-ubyte.gz").read_bytes() == content
    assert "there/mnist" in srelu("data --data there").output


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and keeps no log."""

    def log_message(self, *_: object) -> None:
        pass


def test_bench_compares_with_relu(srelu) -> None:
    result = srelu('bench prelu "srelu fused" --shape 2x3x4x4 --rounds 2')
    assert result.exit_code == 0
    rows = {line.split("  ")[0].strip(): line for line in result.output.splitlines()}
    assert rows["relu"].count("1.00x") == 2
    assert {"prelu", "srelu fused", "byte floor"} <= rows.keys()


# ---- the board -------------------------------------------------------------------------------


def test_board_shows_runs_by_rival_and_seed(tmp_path: Path) -> None:
    from rich.console import Console

    from torch_srelu.lab.train import Progress

    done = [specimen(tmp_path, "relu", 1, range(3)), specimen(tmp_path, "relu", 2, status="dead")]
    open_ = specimen(tmp_path, "srelu", 1, status=None)
    board = boards.Board(["relu", "relu", "srelu"], [r.run for r in (*done, open_)])
    for record in done:
        board.close(record)
    assert board.seconds_left is None  # nothing was trained yet
    for share in (0.25, 0.5):
        board.see(Progress(open_.run, open_.folder, 2, share, None, "frozen", open_.metrics[1]))
    assert board.seconds_left is not None
    console = Console(file=io.StringIO(), width=80)
    console.print(board)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].split() == ["test", "error", "%", "seed", "1", "seed", "2"]
    assert lines[2].split() == ["relu", "1.50", "dead"]
    assert lines[3].split() == ["srelu", "50%"]
    assert "2 of 3 runs, about" in lines[5]
    assert lines[6].strip() == "srelu, seed 1: 2 of 4 epochs, frozen, training loss 1.1000"
