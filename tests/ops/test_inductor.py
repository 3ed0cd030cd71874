"""What torch.compile's own compiler makes of SReLU: forward code of its own, our backward."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch import config as aot_config
from torch._inductor import config, metrics, pattern_matcher
from torch._inductor.fx_passes import post_grad  # noqa: F401  # as every compilation imports it
from torch._inductor.utils import run_and_get_code

from checks import DEVICE, Problem, assert_right, lay_out
from torch_srelu.functional import srelu
from torch_srelu.ops import inductor

OPERATOR = "torch.ops.torch_srelu.srelu.default"
BACKWARD = "torch.ops.torch_srelu.srelu_backward.default"
JOINED = "torch.ops.torch_srelu.srelu_backward_joined.default"
CLOSE = {"rtol": 1e-2, "atol": 1e-2} if DEVICE == "cuda" else {}  # TF32 in convolutions


@pytest.fixture(autouse=True)
def _compiled_anew():
    """No test gets what another one compiled."""
    with config.patch(fx_graph_cache=False), aot_config.patch(enable_autograd_cache=False):
        yield


@pytest.fixture
def in_sight(monkeypatch) -> None:
    """Where there is no GPU, the CPU stands for one: what is put in its place is the same."""
    if DEVICE == "cpu":
        monkeypatch.setattr(inductor, "_suits", lambda x: True)


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 3, 4, device=DEVICE).requires_grad_()
    t_r, a_r, t_l, a_l = (torch.randn(6, device=DEVICE).requires_grad_() for _ in range(4))
    return x, t_r, a_r, t_l, a_l


def compiled_code() -> list[str]:
    """The code of a forward and of a backward pass."""

    def train() -> None:
        torch.compile(srelu, fullgraph=True)(*inputs()).sum().backward()

    return run_and_get_code(train)[1]


def test_only_backward_is_an_operator(in_sight) -> None:
    forward, backward = compiled_code()
    assert OPERATOR not in forward
    assert OPERATOR not in backward
    assert BACKWARD in backward


@pytest.mark.skipif(DEVICE == "cuda", reason="there the compiler makes it")
def test_on_a_cpu_forward_is_an_operator_too() -> None:
    forward, _ = compiled_code()
    assert OPERATOR in forward


CASES = [
    ("expanded", torch.float32),
    ("channels_last", torch.bfloat16),
    ("sliced", torch.float16),
    ("contiguous", torch.float64),
]


# What is compiled for a CPU takes its time, and nobody uses it.
@pytest.mark.parametrize(("layout", "dtype"), CASES if DEVICE == "cuda" else CASES[:1])
def test_three_way(in_sight, layout: str, dtype: torch.dtype) -> None:
    """Values, strides and gradients, for sizes that the compiler does not know."""
    torch.manual_seed(0)
    function = torch.compile(srelu, fullgraph=True, dynamic=True)
    for size in (3, 5):
        x = lay_out(3 * torch.randn(size, 6, 3, 4, dtype=dtype), layout)
        params = [torch.randn(6) for _ in range(4)]
        problem = Problem(x, params, torch.randn_like(x), dim=1)
        assert_right(problem, *problem.to(DEVICE).run(function))


def test_gradients_that_meet_are_added_by_the_operator(in_sight) -> None:
    """Those of two convolutions; not those that the compiler makes and can add by itself."""
    weights = torch.randn(2, 5, 6, 1, 1, device=DEVICE)

    def loss(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor) -> Tensor:
        y, z = srelu(x, t_r, a_r, t_l, a_l), srelu(x, t_l, a_l, t_r, a_r)
        convolved = F.conv2d(y, weights[0]) * F.conv2d(y, weights[1])
        return convolved.sum() + (z.sin() * z.cos()).sum()

    tensors, others = inputs(), inputs()
    torch._dynamo.mark_dynamic(tensors[0], 0)
    compiled = torch.compile(loss, fullgraph=True)
    _, backward = run_and_get_code(lambda: compiled(*tensors).backward())[1]
    assert backward.count(f"{JOINED}(") == backward.count(f"{BACKWARD}(") == 1
    loss(*others).backward()
    torch.testing.assert_close([t.grad for t in tensors], [t.grad for t in others], **CLOSE)


def test_another_torch_leaves_operators_and_says_so(monkeypatch) -> None:
    monkeypatch.delattr(pattern_matcher, "CallFunctionVarArgs")
    inductor._teach.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="torch has changed"):
            inductor.teach()
    finally:
        inductor._teach.cache_clear()


def test_what_is_beside_it_is_fused(in_sight) -> None:
    """One kernel for a sum, SReLU and a product."""

    def around(x: Tensor, t_r: Tensor, a_r: Tensor, t_l: Tensor, a_l: Tensor) -> Tensor:
        return srelu(x + 1, t_r, a_r, t_l, a_l) * 2

    metrics.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(around)(*inputs()), around(*inputs()))
    assert metrics.generated_kernel_count == 1
