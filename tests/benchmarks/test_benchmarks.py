"""The benchmark of the operator, the committed records and the tables made from them."""

import csv
import re
from pathlib import Path

import pytest
import torch

from torch_srelu.lab.analysis.op_timing import FLOOR, PASSES, Case, measure

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "benchmarks" / "results"
TINY = Case((4, 8, 6, 6), torch.float32, "channels_last")


@pytest.fixture
def bench_op(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_op

    return bench_op


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_times_every_provider_and_the_floor() -> None:
    names = ("relu", "prelu", "srelu reference", "srelu fused")
    rows = list(measure(TINY, names, rounds=5))
    assert {(r.provider, r.which) for r in rows} == {
        (n, w) for n in (FLOOR, *names) for w in PASSES
    }
    assert all(0 < r.p20 <= r.median <= r.p80 for r in rows)


@pytest.mark.parametrize(
    ("options", "place"),
    [([], "runs/bench"), (["--out", "here"], "here"), (["--record"], "committed")],
)
@pytest.mark.parametrize("what", ["sizes", "resnet"])
def test_committed_records_are_replaced_only_where_asked(
    bench_op, what, options, place, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("places.COMMITTED", Path("committed"))
    monkeypatch.setattr(bench_op, what.upper(), [TINY])
    monkeypatch.setattr(bench_op, "touch_memory", lambda: None)  # which takes half of what is free
    monkeypatch.setattr(bench_op, "place_results", lambda fresh: None)  # it would last for others
    bench_op.main([f"--{what}", "--rounds", "3", *options])
    (path,) = tmp_path.rglob("*.csv")
    assert path.parent == tmp_path / place
    assert path.stem == f"{what}-{'cuda' if torch.cuda.is_available() else 'cpu'}"
    rows = rows_of(path)
    assert {row["provider"] for row in rows} == {FLOOR, *bench_op.FEW}
    for row in rows:
        assert row.keys() == set(bench_op.COLUMNS)
        assert (row["shape"], row["dtype"], row["layout"]) == ("4x8x6x6", "float32", TINY.layout)
        assert 0 < float(row["p20_us"]) <= float(row["median_us"]) <= float(row["p80_us"])
        assert (row["rounds"], row["torch"]) == ("3", torch.__version__)


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import tables

    return tables


def test_readme_and_docs_show_the_committed_tables(tables, capsys):
    tables.main([])
    shown = "".join(
        (ROOT / name).read_text() for name in ("README.md", "docs/speed.md", "docs/systems.md")
    )
    parts = capsys.readouterr().out.strip().split("\n\n")
    # operator, ResNet-50's tensors, a CPU's of every size, steps, memory, adapt, images
    assert sum(part.startswith("|") for part in parts) == 7
    for part in parts:
        assert part in shown


def test_without_measurements_there_are_no_tables(tables, tmp_path, capsys):
    with pytest.raises(SystemExit):
        tables.main([str(tmp_path)])
    assert f"nothing was measured yet: {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["op", "sizes", "resnet", "step", "adapt", "images"])
def test_committed_records_name_hardware_and_versions(kind):
    rows = [row for path in COMMITTED.glob(f"{kind}-*.csv") for row in rows_of(path)]
    assert rows
    for row in rows:
        assert row["hardware"]
        assert re.match(r"\d+\.\d+\.\d+", row["torch"])
        assert re.match(r"\d+\.\d+\.\d+", row["torch_srelu"])
        assert int(row["turns" if kind == "step" else "rounds"]) >= 3
