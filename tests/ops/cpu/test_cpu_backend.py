"""The native kernels: threads, forks, memory, and an installation without a compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torch_srelu
from checks import Problem, lay_out, using
from torch_srelu.ops import execution
from torch_srelu.ops.arguments import Needs, Parameters
from torch_srelu.ops.cpu import cpu_backend as cpu

SOURCE = Path(torch_srelu.__file__).parent


def test_is_compiled_here() -> None:
    """The suite would pass on the reference alone."""
    assert cpu.unavailable_reason() is None
    assert cpu.isas()[0] == "portable"


@pytest.mark.parametrize("shape", [(32, 16, 40, 40), (60000, 16)])
def test_the_number_of_threads_changes_no_bit(shape) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(shape, requires_grad=True), torch.randn(shape)
    unit = torch_srelu.SReLU(16, a_r=0.5, t_l=-0.3)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            y = unit(x)
            results.append((y, *torch.autograd.grad(y, [x, *unit.parameters()], grad)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


# Both shapes of loop, each with an odd number of elements, of channels and of rows.
ODD_SHAPES = [(3, 5, 9, 77), (33, 41, 7, 7), (9001, 33)]


@pytest.mark.parametrize("isa", cpu.isas())
@pytest.mark.parametrize("shape", ODD_SHAPES)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_bfloat16_has_the_bits_of_the_reference(isa: str, shape, layout: str) -> None:
    """Two elements are computed in a word: none is lost at the end, and all are rounded alike."""
    torch.manual_seed(0)
    scales = torch.tensor([1.0, 1e-39, 3e38])  # the smallest and the largest numbers among them
    x, grad = (
        lay_out(torch.randn(shape) * scales[torch.randint(3, shape)], layout).bfloat16()
        for _ in range(2)
    )
    params = [torch.randn(shape[1]) for _ in range(4)]
    with using(f"cpu-{isa}"):
        y, grads = Problem(x, params, grad, 1).run()
    with using("reference"):
        expected_y, expected = Problem(x, params, grad, 1).run()
    assert torch.equal(y, expected_y)
    assert torch.equal(grads[0], expected[0])


@pytest.mark.parametrize("isa", cpu.isas())
@pytest.mark.parametrize("shape", ODD_SHAPES)
def test_every_nan_in_a_parameter_reaches_bfloat16(isa: str, shape) -> None:
    """Also one whose bits are all ones: rounding it up would make a zero of it."""
    all_ones = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    params = [
        torch.zeros(shape[1]),
        torch.full((shape[1],), float(all_ones)),
        *torch.zeros(2, shape[1]),
    ]
    assert params[1].view(torch.int32)[0] == 0x7FFFFFFF
    x = torch.ones(shape, dtype=torch.bfloat16)
    with using(f"cpu-{isa}"):
        y, grads = Problem(x, params, x, 1).run()
    assert y.isnan().all()
    assert grads[0].isnan().all()


@pytest.mark.parametrize("isa", cpu.isas())
@pytest.mark.parametrize("dtype", cpu.DTYPES)
@pytest.mark.parametrize("shape", ODD_SHAPES)
def test_gradients_do_not_depend_on_which_are_needed(isa: str, dtype: torch.dtype, shape) -> None:
    """A frozen unit has no parameter gradients, the first of a network none for its input."""
    torch.manual_seed(0)
    x, grad = torch.randn(2, *shape).to(dtype)
    arguments = (grad, x, Parameters(*torch.randn(4, shape[1])), 1)
    with using(f"cpu-{isa}"):
        grad_x, grads = execution.backward(*arguments, Needs(True, True))
        only_x, no_grads = execution.backward(*arguments, Needs(True, False))
        no_x, only_grads = execution.backward(*arguments, Needs(False, True))
    assert no_x is None
    assert no_grads is None
    assert grad_x is not None
    assert only_x is not None
    assert grads is not None
    assert only_grads is not None
    assert torch.equal(only_x, grad_x)
    assert torch.equal(only_grads, grads)


@pytest.mark.parametrize("dim", [1, 3])
def test_large_results_are_those_of_their_parts(dim: int) -> None:
    """Above 24 MiB, kernels prefetch the input and prefault the pages of the result."""
    torch.manual_seed(0)
    shape = (6, 16, 300, 300) if dim == 1 else (6, 300, 300, 16)
    x, grad = torch.randn(2, *shape)
    params = torch.randn(4, 16)
    assert x.nbytes > 24 * 2**20
    y = execution.forward(x, Parameters(*params), dim)
    grad_x, _ = execution.backward(grad, x, Parameters(*params), dim, Needs(True, True))
    assert grad_x is not None
    parts = zip(x.chunk(2), grad.chunk(2), y.chunk(2), grad_x.chunk(2), strict=True)
    for part, part_grad, part_y, part_grad_x in parts:
        assert torch.equal(part_y, execution.forward(part, Parameters(*params), dim))
        small, _ = execution.backward(part_grad, part, Parameters(*params), dim, Needs(True, True))
        assert small is not None
        assert torch.equal(part_grad_x, small)


class ActivatedInWorker(Dataset):
    """Items that need SReLU, forward and backward, in the worker process, with two threads.

    Nothing else here may run in parallel: torch itself hangs in a forked child.
    """

    def __init__(self) -> None:
        self.x, self.grad = torch.randn(2, 16, 8, 64, 64)
        self.params = list(torch_srelu.SReLU(8, a_r=0.5).requires_grad_(False).parameters())

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        torch.set_num_threads(2)
        y = execution.forward(self.x, Parameters(*self.params), 1)
        grads = execution.backward(
            self.grad, self.x, Parameters(*self.params), 1, Needs(True, True)
        )
        return [y, *(g for g in grads if g is not None)]


def test_works_in_forked_dataloader_workers() -> None:
    """An OpenMP pool does not survive a fork; a parallel region in the child would hang."""
    data = ActivatedInWorker()
    expected = data[0]  # starts the threads of the parent
    fork = {"num_workers": 2, "multiprocessing_context": "fork", "timeout": 60}
    for got in DataLoader(data, batch_size=None, **fork):
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_keeps_exactly_one_input_sized_tensor() -> None:
    x = torch.randn(8, 16, 10, 10, requires_grad=True)
    kept: list[torch.Tensor] = []

    def keep(t: torch.Tensor) -> torch.Tensor:
        kept.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        torch_srelu.SReLU(16)(x)
    large = [t for t in kept if t.numel() >= x.numel()]
    assert len(large) == 1
    assert large[0].data_ptr() == x.data_ptr()


WITHOUT_LIBRARY = """
import warnings, torch, torch_srelu
assert "not compiled" in torch_srelu.backends()["cpu"], torch_srelu.backends()
unit = torch_srelu.SReLU(3)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    unit(torch.randn(2, 3)).sum().backward()
    unit(torch.randn(2, 3))
ours = [str(w.message) for w in caught if "torch_srelu" in str(w.message)]
assert len(ours) == 1 and "plain-torch reference" in ours[0], ours
assert unit.a_l.grad is not None
print("fine")
"""


def test_runs_on_the_reference_without_a_compiled_library(tmp_path: Path) -> None:
    """Says so once, clearly, and in backends()."""
    for file in SOURCE.rglob("*"):
        if file.suffix in {".py", ".typed"} and file.is_file():
            target = tmp_path / "torch_srelu" / file.relative_to(SOURCE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "fine", done.stderr


def test_installs_where_no_compiler_exists(tmp_path: Path) -> None:
    """`pip install` with a compiler that fails: the package is there, without the library."""
    root = SOURCE.parent.parent
    project = tmp_path / "project"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_bytes((root / name).read_bytes())
    for file in (root / "src" / "torch_srelu").rglob("*"):
        if file.is_file() and file.suffix not in {".so", ".pyc"}:
            target = project / "src" / "torch_srelu" / file.relative_to(SOURCE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build", "--build-lib", str(tmp_path / "built")],
        cwd=project,
        env={**os.environ, "CC": "no-such-compiler", "CXX": "no-such-compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = tmp_path / "built" / "torch_srelu"
    assert (built / "ops" / "cpu" / "native" / "srelu.c").exists()
    assert not list(built.rglob("*.so"))


def test_parameters_of_any_stride_and_dtype() -> None:
    x = torch.randn(4, 3)
    wide = torch.randn(3, 8)
    strided = [wide[:, 2 * k] for k in range(4)]
    packed = [p.clone() for p in strided]
    assert torch.equal(torch_srelu.srelu(x, *strided), torch_srelu.srelu(x, *packed))
    low = nn.Module.to(torch_srelu.SReLU(3), torch.bfloat16)
    low(x).sum().backward()
    assert low.t_r.grad is not None
    assert low.t_r.grad.dtype == torch.bfloat16


def test_unknown_instruction_set() -> None:
    with pytest.raises(ValueError, match="portable"):
        cpu.set_isa("neon9")
