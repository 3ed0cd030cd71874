"""The benchmark of photographs: images in memory, streamed, and the stream alone."""

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from torch_srelu.lab.paper.row_recipes import SYSTEMS

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_measures_all_three(tmp_path, monkeypatch):
    for folder in ("benchmarks", "tests/lab"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    from photographs import write_folders

    import bench_images

    def few(row, condition, seed):  # GoogLeNet takes seconds for each image, in bfloat16
        return replace(SYSTEMS[row](condition, seed), batch=2, precision="float32")

    monkeypatch.setattr(bench_images, "SYSTEMS", {"googlenet": partial(few, "googlenet")})
    classes = [f"n{c:02}" for c in range(10)]
    write_folders(tmp_path / "data" / "imagenette", train=1, val=1, classes=classes)
    monkeypatch.chdir(tmp_path)
    given = ["--data", str(tmp_path / "data"), "--activations", "relu", "--device", "cpu"]
    bench_images.main([*given, "--steps", "2", "--rounds", "2"])
    with (tmp_path / "runs" / "bench" / "images-cpu.csv").open(newline="") as file:
        kept, streamed, stream = csv.DictReader(file)
    assert [row["what"] for row in (kept, streamed, stream)] == [
        "training, kept",
        "training, streamed",
        "stream alone",
    ]
    for row in (kept, streamed, stream):
        assert 0 <= int(row["lowest"]) <= int(row["images_per_s"]) <= int(row["highest"])
        assert (row["rounds"], row["steps"], row["batch"]) == ("2", "1", "2")
    assert kept["workers"] == "0" != streamed["workers"]
