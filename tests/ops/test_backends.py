"""Selection of backends, and imports that stay light."""

import os
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


@pytest.mark.usefixtures("one_thread")
def test_threads_are_counted_in_words() -> None:
    assert torch_srelu.backends()["cpu"].endswith("; 1 thread)")


def test_unknown_backend_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="one of reference, cpu, triton, got 'gpu'"):
        torch_srelu.use_backend("gpu")  # not only when the context begins


COMPILED_TRITON = """
import torch, torch_srelu
with torch_srelu.use_backend("triton"):
    try:
        torch_srelu.SReLU(3)(torch.randn(2, 3))
    except ValueError as error:
        print(error)
"""


def test_triton_needs_a_gpu_or_its_interpreter() -> None:
    pytest.importorskip("triton")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED_TRITON],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert 'use_backend("triton") cannot compute a tensor on cpu' in done.stdout, done.stderr


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
