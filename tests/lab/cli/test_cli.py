"""The command line: help, mistakes, exit codes, and the commands that train nothing."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import shlex
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import typer
from command import process, srelu
from specimens import specimen

from torch_srelu import __version__
from torch_srelu.__main__ import INSTALL
from torch_srelu.lab.cli import app
from torch_srelu.lab.cli.run_arguments import SETTINGS
from torch_srelu.lab.data.datasets import DATASETS, Source
from torch_srelu.lab.models.activation_registry import ACTIVATIONS
from torch_srelu.lab.models.network_registry import PLANS

FILE = "file is a file, where a folder is expected: name a folder, or move the file away"
COMMANDS = ("compare", "train", "report", "paper", "data", "bench")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_help_names_every_command_and_shows_examples() -> None:
    overview = srelu("--help").output
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", overview)
        assert f"srelu {command}" in srelu(f"{command} --help").output


@pytest.mark.parametrize("command", ["train", "compare"])
def test_help_names_all_that_can_be_chosen(command: str) -> None:
    words = set(re.findall(r"[\w-]+", srelu(f"{command} --help").output))
    assert {*ACTIVATIONS, *PLANS, *SETTINGS, "slope", "hinges"} <= words


def test_help_names_the_data_sets_that_can_be_got() -> None:
    words = set(re.findall(r"[\w-]+", srelu("data get --help").output))
    assert {name for name, data in DATASETS.items() if data.sources} <= words


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


def test_version() -> None:
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
    assert err.splitlines() == [f"srelu needs the package typer, which is not installed: {INSTALL}"]


def test_without_plotly_there_is_everything_but_the_page(tmp_path: Path) -> None:
    specimen(tmp_path / "runs", "relu", 1, [3])
    code = (
        "import sys; sys.modules['plotly'] = None; sys.argv = ['srelu', 'report'];"
        "from torch_srelu.__main__ import main; main()"
    )
    child = process("-c", code, cwd=tmp_path)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "nin-digits on digits" in out
    assert err.splitlines() == [
        f"srelu needs the package plotly, which is not installed: {INSTALL}"
    ]


def test_slow_packages_are_imported_when_they_are_needed() -> None:
    code = (
        "import sys, torch_srelu.lab.cli, torch_srelu.lab.training.loop;"
        "print({'plotly', 'matplotlib', 'tensorboard', 'sklearn'} & sys.modules.keys())"
    )
    out, _ = process("-c", code).communicate(timeout=60)
    assert out == "set()\n"


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
        (
            "compare relu gelu --set freeze=2",
            "freeze means nothing to relu and gelu, only to srelu",
        ),
        ("train relu --set quantile=abc", "quantile means nothing to relu, only to srelu"),
        ("train srelu:quantil=0.8", "unknown option of srelu 'quantil': did you mean 'quantile'?"),
        ("train srelu-manual:freeze=2", "unknown option of srelu-manual 'freeze'"),
        ("train srelu --set seed=3", "seed is not chosen with --set but with --seed"),
        ("train --set activation=relu", "activation is not chosen with --set but by its name"),
        ("train --set epochs=3 --epochs 2", "epochs is given twice, with --epochs and with --set"),
        ("train --set lr=3 --set lr=2", "lr is given twice: give it once"),
        ("compare lrelu:slope", "expected NAME=VALUE, got 'slope'"),
        ("train srelu --set momentun=1", "did you mean 'momentum'?"),
        ("train srelu --set lr=fast", "lr must be of type float, got 'fast'"),
        ("train srelu --set milestones=a", "milestones must be a list of numbers, got ('a',)"),
        ("train srelu --set fixed=[5]", "fixed must be a list of names, got (5,)"),
        ("train srelu --set fixed=[t_r,a_r", "fixed must be a list such as a,b or [a, b], got"),
        ("train srelu:fixed=(t_r,a_r)", "fixed must be a list such as a,b or [a, b], got"),
        ("train lrelu:slope=0.1,foo", "expected NAME=VALUE, got 'foo'"),
        ("train relu --device cpu:x", "unknown device 'cpu:x': choose cpu, cuda or cuda:0"),
        ("train srelu --epochs 3 --set freeze=5", "freeze of 5 epochs leaves nothing of 3 epochs"),
        ("train srelu --data nowhere", "--data nowhere: no such folder"),
        ("paper run rehearsal --data nowhere", "--data nowhere: no such folder"),
        ("paper run rehearsal --device tpu", "unknown device 'tpu': choose cpu, cuda or cuda:0"),
        ("train --set validation=0.99999", "validation 0.99999 leaves 0 training images, fewer"),
        ("train --dataset mnist", "with --data (in Python: data_root) or SRELU_DATA"),
        ("train --dataset mnist", "get it with `srelu data get mnist`"),
        ("report nowhere", "no records in nowhere: train some with `srelu compare`"),
        (
            "paper run headlin",
            "unknown block 'headlin': did you mean 'headline' or 'headline-cifar10'?",
        ),
        ("paper collect headline", "there are no records in runs"),
        ("paper figure1 --out a.jpeg", "unknown file type of a.jpeg 'jpeg'"),
        ("paper run nothing-like-it", "'nothing-like-it': `srelu paper run` lists all"),
        ("bench rely", "unknown provider 'rely': did you mean 'relu'?"),
        ("bench --shape 3", "shape must be at least two sizes like 64x192x32x32, got '3'"),
        ("bench --dtype int8", "unknown dtype 'int8'"),
        ("data get mnsit", "unknown dataset 'mnsit': did you mean 'mnist'?"),
        ("data get digits", "digits needs no download"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path: Path, line: str, message: str) -> None:
    result = srelu(line)
    assert result.exit_code == 1
    assert not result.stdout
    assert result.stderr.startswith("srelu: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not [f for f in tmp_path.rglob("*") if f.is_file()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("paper figure1 --out no/where.png", "the folder no for where.png does not exist: make it"),
        ("paper figure1 --out file/f.png", FILE),
        ("report --out folder", "folder is a folder, where a file is expected: name a file"),
        ("report --out .", ". is a folder, where a file is expected: name a file, as in NAME"),
        ("report file", FILE),
        ("compare relu --seeds 1 --report no/page.html", "the folder no for page.html does not"),
        ("train --records file", FILE),
        ("train --records file/below", FILE),
        ("train --dataset mnist --data file", "file is damaged or no archive"),
        ("paper table2 --results file", FILE),
        ("paper run rehearsal --records file", FILE),
        ("paper run rehearsal --results file", FILE),
        ("paper collect headline --results file", FILE),
        ("data get mnist --data file", FILE),
    ],
)
def test_a_path_that_cannot_be_used_is_one_clear_line(line: str, message: str) -> None:
    Path("file").touch()
    Path("folder").mkdir()
    specimen(Path("runs"), "relu", 1, [3])
    before = sorted(Path.cwd().rglob("*"))
    result = srelu(line)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"srelu: {message}")
    assert len(result.stderr.splitlines()) == 1
    assert sorted(Path.cwd().rglob("*")) == before


def test_wrong_usage_has_its_own_exit_code() -> None:
    assert srelu("compare --seeds 0").exit_code == 2
    assert srelu("no-such-command").exit_code == 2
    assert srelu("paper figure9").exit_code == 2
    assert srelu("paper figure1 --results here").exit_code == 2  # it is drawn from no records


def test_report_in_every_format(tmp_path: Path) -> None:
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


def test_report_of_records_of_another_version(tmp_path: Path) -> None:
    folder = specimen(tmp_path / "runs", "relu", 1).folder
    plain = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(plain | {"format": 99}))
    result = srelu("report")
    assert result.exit_code == 1
    assert "format 99" in result.stderr


def test_data_says_what_is_there_and_where_it_looked(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "given/mnist").mkdir(parents=True)
    (tmp_path / "given/mnist/train-images-idx3-ubyte").touch()
    monkeypatch.setenv("SRELU_DATA", "elsewhere")
    lines = " ".join(srelu("data --data given").output.split())
    assert "digits 1 x 8 x 8 10 part of scikit-learn" in lines
    assert "mnist 1 x 28 x 28 10 given/mnist" in lines
    assert "missing: srelu data get cifar10" in lines
    assert "Looked in given, then elsewhere, then" in lines


def test_data_get_downloads_and_says_where(tmp_path: Path, monkeypatch) -> None:
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


def test_bench_compares_with_relu() -> None:
    result = srelu('bench prelu "srelu fused" --shape 2x3x4x4 --rounds 2')
    assert result.exit_code == 0
    rows = {line.split("  ")[0].strip(): line for line in result.output.splitlines()}
    assert rows["relu"].count("1.00x") == 2
    assert {"prelu", "srelu fused", "byte floor"} <= rows.keys()
