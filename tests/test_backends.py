"""What runs where, and the promise that importing costs nothing."""

import subprocess
import sys

import pytest
import torch

import torch_srelu


def test_backends_tells_what_is_in_use() -> None:
    table = torch_srelu.backends()
    assert table["cpu"].startswith("cpu (C, ")  # the name that use_backend takes
    assert "reference" in table["other"]
    if not torch.cuda.is_available():
        assert "no CUDA device" in table["cuda"]
    with torch_srelu.use_backend("reference"):
        assert set(torch_srelu.backends().values()) == {"reference: forced by use_backend"}
    assert torch_srelu.backends() == table


def test_unknown_backend() -> None:
    with (
        pytest.raises(ValueError, match="one of reference, cpu, triton, got 'gpu'"),
        torch_srelu.use_backend("gpu"),
    ):
        pass


IMPORT = """
import sys, torch, torch_srelu
heavy = {"triton", "matplotlib", "plotly", "typer", "scipy", "torch_srelu.lab"} & set(sys.modules)
assert not heavy, heavy
assert not torch.cuda.is_initialized()
print("light")
"""


def test_import_is_light() -> None:
    """No Triton, no plotting, no CUDA context: torch alone."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "light", done.stderr


def test_a_forced_backend_computes_what_it_can() -> None:
    x = torch.randn(4, 3, dtype=torch.float16)
    expected = torch_srelu.SReLU(3)(x)
    with torch_srelu.use_backend("cpu"):
        assert torch.equal(torch_srelu.SReLU(3)(x), expected)  # no kernel for float16: reference
