"""SReLU compiled by Inductor: two operators, the backward one fused with its neighbours."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch import config as aot_config
from torch._inductor import config
from torch._inductor.fx_passes import post_grad  # noqa: F401  # as every compilation imports it
from torch._inductor.utils import run_and_get_code

from checks import DEVICE, Problem, assert_right, lay_out
from torch_srelu.functional import srelu
from torch_srelu.ops.inductor import inductor_patterns

BACKWARD, FUSED = "srelu_backward", "srelu_backward_fused"
CLOSE = {"rtol": 1e-2, "atol": 1e-2} if DEVICE == "cuda" else {}  # TF32 in convolutions


@pytest.fixture(autouse=True)
def _compiled_anew():
    """No test gets compiled code of another."""
    with config.patch(fx_graph_cache=False), aot_config.patch(enable_autograd_cache=False):
        yield


@pytest.fixture
def cpu_as_gpu(monkeypatch) -> None:
    """Without a GPU, fuses on the CPU: the graph is the same."""
    if DEVICE == "cpu":
        monkeypatch.setattr(inductor_patterns, "_has_fused_kernel", lambda x: True)


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 3, 4, device=DEVICE).requires_grad_()
    t_r, a_r, t_l, a_l = (torch.randn(6, device=DEVICE).requires_grad_() for _ in range(4))
    return x, t_r, a_r, t_l, a_l


def called(code: str) -> list[str]:
    """The operators of ours that compiled code calls."""
    return re.findall(r"torch\.ops\.torch_srelu\.(\w+)\.default\(", code)


def compiled_code(**options: Tensor) -> list[str]:
    """The code of a forward and of a backward pass."""

    def train() -> None:
        torch.compile(srelu, fullgraph=True)(*inputs(), **options).sum().backward()

    return run_and_get_code(train)[1]


@pytest.mark.parametrize("biased", [False, True])
def test_both_passes_are_operators(biased: bool) -> None:
    options = {"bias": torch.randn(6, device=DEVICE).requires_grad_()} if biased else {}
    forward, backward = compiled_code(**options)
    assert called(forward) == ["srelu"]
    assert called(backward) == [BACKWARD]


CASES = [
    ("expanded", torch.float32),
    ("channels_last", torch.bfloat16),
    ("sliced", torch.float16),
    ("contiguous", torch.float64),
]


# What is compiled for a CPU takes its time, and nobody uses it.
@pytest.mark.parametrize(("layout", "dtype"), CASES if DEVICE == "cuda" else CASES[:1])
def test_three_way(cpu_as_gpu, layout: str, dtype: torch.dtype) -> None:
    """Values, strides and gradients, for sizes that the compiler does not know."""
    torch.manual_seed(0)
    function = torch.compile(srelu, fullgraph=True, dynamic=True)
    for size in (3, 5):
        x = lay_out(3 * torch.randn(size, 6, 3, 4, dtype=dtype), layout)
        params = [torch.randn(6) for _ in range(4)]
        problem = Problem(x, params, torch.randn_like(x), dim=1)
        assert_right(problem, *problem.to(DEVICE).run(function))


def test_two_gradients_are_added_by_the_operator(cpu_as_gpu) -> None:
    """Those of two convolutions; not those for which Inductor generates code."""
    weights = torch.randn(2, 5, 6, 1, 1, device=DEVICE)

    def loss(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor) -> Tensor:
        y, z = srelu(x, t_r, a_r, t_l, a_l), srelu(x, t_l, a_l, t_r, a_r)
        convolved = F.conv2d(y, weights[0]) * F.conv2d(y, weights[1])
        return convolved.sum() + (z.sin() * z.cos()).sum()

    tensors, others = inputs(), inputs()
    torch._dynamo.mark_dynamic(tensors[0], 0)
    compiled = torch.compile(loss, fullgraph=True)
    _, backward = run_and_get_code(lambda: compiled(*tensors).backward())[1]
    assert sorted(called(backward)) == [BACKWARD, FUSED]
    loss(*others).backward()
    torch.testing.assert_close([t.grad for t in tensors], [t.grad for t in others], **CLOSE)
