"""The benchmark of training steps: small sizes, records, tables."""

import csv
import sys
from pathlib import Path

import pytest
import torch

from torch_srelu.lab.records.collect_env import environment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench_step(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_step

    return bench_step


def records(folder):
    (path,) = folder.glob("*.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_measures_records_and_tabulates(bench_step, tmp_path, monkeypatch):
    pytest.importorskip("torchvision")
    monkeypatch.chdir(tmp_path)
    small = ["--modes", "eager", "--turns", "3", "--batch", "2"]
    recomputed = ["srelu recomputed", "srelu recomputed in part"]
    bench_step.main(["--nets", "nin", "--activations", *recomputed, *small])
    resnet = ["--nets", "resnet50", "--pixels", "32", "--activations", "srelu recomputed in part"]
    bench_step.main([*resnet, *small])
    rows = records(tmp_path / "runs" / "bench")
    assert [(r["net"], r["activation"]) for r in rows] == [
        *(("nin", a) for a in ("relu", *recomputed)),
        *(("resnet50", a) for a in ("relu", "srelu recomputed in part")),
    ]
    for row in rows:
        assert 0 < float(row["p20_ms"]) <= float(row["median_ms"]) <= float(row["p80_ms"])
        assert float(row["ratio"]) == 1 or row["activation"] != "relu"
        assert row["hardware"]
        assert row["torch"] == torch.__version__
        assert (float(row["peak_mib"]) > 0) if torch.cuda.is_available() else not row["peak_mib"]
    table = "\n".join(bench_step.tables(Path("runs/bench")))
    assert f"{float(rows[1]['ratio']):.2f}" in table
    assert "resnet50, batch 2" in table


def test_a_network_in_a_mode_replaces_its_older_record(bench_step, tmp_path):
    where = environment(torch.device("cpu"))
    path = tmp_path / "step-cpu.csv"
    for net, mode, ratio in (
        ("resnet50", "eager", "1"),
        ("nin", "compiled", "2"),
        ("nin", "eager", "3"),
        ("nin", "compiled", "4"),
    ):
        bench_step.save([{"net": net, "mode": mode, "ratio": ratio}], path, where)
    found = [(r["net"], r["mode"], r["ratio"]) for r in records(tmp_path)]
    assert found == [("nin", "eager", "3"), ("nin", "compiled", "4"), ("resnet50", "eager", "1")]


@pytest.mark.parametrize("bad", [["--turns", "2"], ["--nets", "vgg"]])
def test_bad_arguments_measure_nothing(bench_step, bad, tmp_path, capsys):
    with pytest.raises(SystemExit):
        bench_step.main([*bad, "--out", str(tmp_path)])
    assert "turns must be at least 3" in capsys.readouterr().err or bad[0] == "--nets"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("nets", [["nin", "resnet50"], ["resnet50"]])
def test_without_torchvision_nothing_is_measured(bench_step, nets, tmp_path, monkeypatch, capsys):
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit):
        bench_step.main(["--nets", *nets, "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert "resnet50: torchvision cannot be imported" in printed.err
    assert printed.err.endswith(", or give --nets nin\n") == ("nin" in nets)
    assert not printed.out
    assert not list(tmp_path.iterdir())


def test_the_rivals_of_resnet50_have_their_own_units(bench_step):
    """One a call site, of its size: what convert has found."""
    models = pytest.importorskip("torchvision.models")
    import training_steps
    from torch_srelu import SReLU, convert

    net = convert(models.resnet50())
    sizes = [m.num_channels for m in net.modules() if isinstance(m, SReLU)]
    training_steps._replace_units(net, torch.nn.PReLU)
    assert [m.num_parameters for m in net.modules() if isinstance(m, torch.nn.PReLU)] == sizes
    assert len(sizes) == 49
    loss = net(torch.randn(2, 3, 32, 32)).sum()
    loss.backward()
    assert all(p.grad is not None for p in net.parameters())
