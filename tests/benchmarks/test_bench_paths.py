"""The special code paths can be turned off, and the operator is right without them."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

PROGRAM = """
import sys

sys.path.insert(0, sys.argv[1])
import torch

import bench_paths
import torch_srelu as ts
from torch_srelu.ops import call_cache, reference

measured = {off for group in bench_paths.GROUPS.values() for off in group.without}
assert {name for off in measured for name in off.split("+")} == bench_paths.OFF.keys()
for turn_off in bench_paths.OFF.values():
    turn_off()
x, *params = torch.randn(8, 3), *torch.randn(4, 3)
torch.testing.assert_close(ts.srelu(x, *params), reference.srelu(x, *params, 1))
assert not call_cache._calls
unit = ts.SReLU(3)
ts.AdaptiveInit(unit, torch.optim.SGD(ts.param_groups(unit, lr=0.1))).adapt([x])
assert torch.equal(unit.t_r, x.sort(0).values[7])
"""


def test_all_paths_can_be_turned_off() -> None:
    pytest.importorskip("triton")
    subprocess.run([sys.executable, "-c", PROGRAM, str(BENCHMARKS)], check=True)
