"""What torch.compile's own compiler makes of SReLU: forward code of its own, our backward."""

import re

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
from torch_srelu.ops.inductor import inductor_patterns as inductor

BACKWARD, JOINED = "srelu_backward_bare", "srelu_backward_joined_bare"
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


def called(code: str) -> list[str]:
    """The operators of ours that compiled code calls."""
    return re.findall(r"torch\.ops\.torch_srelu\.(\w+)\.default\(", code)


def compiled_code(**options: Tensor) -> list[str]:
    """The code of a forward and of a backward pass."""

    def train() -> None:
        torch.compile(srelu, fullgraph=True)(*inputs(), **options).sum().backward()

    return run_and_get_code(train)[1]


def test_only_backward_is_an_operator(in_sight) -> None:
    forward, backward = compiled_code()
    assert called(forward) == []
    assert called(backward) == [BACKWARD]


@pytest.mark.skipif(DEVICE == "cuda", reason="there the compiler makes it")
def test_on_a_cpu_forward_is_an_operator_too() -> None:
    forward, backward = compiled_code()
    assert called(forward) == ["srelu_bare"]
    assert called(backward) == [BACKWARD]


def test_operators_with_a_bias_are_bare_too() -> None:
    bias = torch.randn(6, device=DEVICE).requires_grad_()
    forward, backward = compiled_code(bias=bias)
    assert called(forward) == ["biased_srelu_bare"]
    assert called(backward) == ["biased_srelu_backward_bare"]


def test_bare_operators_are_the_usual_ones() -> None:
    """Values, and what the compiler is told of them."""
    x, *params = (t.detach() for t in inputs())
    bias, norm = torch.randn(6, device=DEVICE), (None,) * 5
    given = {
        "srelu": (x, *params, 1, False),
        "biased_srelu": (x, *params, bias, 1, False),
        "srelu_backward": (x, x, *params, 1, True, True),
        "biased_srelu_backward": (x, x, *params, 1, True, True, bias, True),
        "srelu_backward_joined": (x, x, x, *params, 1, True, *norm),
    }
    assert given.keys() == {usual._opname for usual in inductor.BARE}
    for usual, bare in inductor.BARE.items():
        arguments = given[usual._opname]
        torch.testing.assert_close(bare(*arguments), usual(*arguments), rtol=0, atol=0)
        torch.library.opcheck(bare, arguments, test_utils=("test_schema", "test_faketensor"))


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
    assert sorted(called(backward)) == [BACKWARD, JOINED]
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
