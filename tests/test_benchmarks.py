"""The benchmark runs, and the README shows what its records say."""

import csv
import subprocess
import sys
from pathlib import Path

import torch

from torch_srelu.lab.bench import FLOOR, PASSES, Case, measure

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "benchmarks" / "bench_op.py"


def test_times_every_provider_and_the_floor() -> None:
    case = Case((4, 8, 6, 6), torch.float32, "channels_last")
    names = ("relu", "prelu", "srelu reference", "srelu fused")
    rows = list(measure(case, names, rounds=5))
    assert {(r.provider, r.which) for r in rows} == {
        (n, w) for n in (FLOOR, *names) for w in PASSES
    }
    assert all(0 < r.p20 <= r.median <= r.p80 for r in rows)


def test_the_readme_shows_the_recorded_prices() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--table"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in (ROOT / "README.md").read_text()


def test_records_name_hardware_and_versions() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("op-*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                assert row["hardware"]
                assert row["torch"]
                assert int(row["rounds"]) >= 3
