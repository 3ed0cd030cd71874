"""The benchmark of AdaptiveInit: a few images, records, tables."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench_adapt(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_adapt

    monkeypatch.setattr(bench_adapt, "BATCH", 2)
    return bench_adapt


@pytest.mark.usefixtures("one_thread")
def test_measures_records_and_tabulates(bench_adapt, tmp_path, monkeypatch, capsys):
    import places

    monkeypatch.chdir(tmp_path)
    bench_adapt.main(["--images", "4", "--rounds", "3"])
    (row,) = [r for path in Path("runs/bench").iterdir() for r in places.read_csv(path)]
    for name in (*bench_adapt.TIMED, bench_adapt.RATIO):
        assert 0 < float(row[f"{name}_min"]) <= float(row[name]) <= float(row[f"{name}_max"])
    assert (row["images"], row["rounds"]) == ("4", "3")
    assert int(row["passes"]) in (1, 2)
    assert f"adapt / epoch {'':34} {row['ratio']:>8}" in capsys.readouterr().out
    table, note = bench_adapt.tables(Path("runs/bench"))
    assert f"| {row['ratio']} | {row['ratio_min']} to {row['ratio_max']} |" in table
    assert row["hardware"] in note


@pytest.mark.parametrize(
    ("bad", "why"),
    [(["--rounds", "2"], "rounds must be at least 3"), (["--images", "1"], "at least 2, a batch")],
)
def test_bad_arguments_measure_nothing(bench_adapt, bad, why, tmp_path, capsys):
    with pytest.raises(SystemExit):
        bench_adapt.main([*bad, "--out", str(tmp_path)])
    assert why in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
