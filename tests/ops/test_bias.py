"""SReLU with a bias: the bits of adding it first, and its gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import torch_srelu
from checks import (
    BACKENDS,
    LAYOUTS,
    TRUNCATION_ULPS,
    Problem,
    device_of,
    double_problem,
    opcheck,
    problems,
    rounding,
    takes,
    using,
)
from torch_srelu.ops import custom_ops, execution, reference

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def _bias(problem: Problem) -> torch.Tensor:
    return torch.randn(problem.x.shape[problem.dim], device=problem.x.device)


def _run(problem: Problem, bias: torch.Tensor, fused: bool, frozen: bool):
    """The output and the six gradients."""
    x = problem.x.detach().requires_grad_()
    leaves = [t.detach().requires_grad_() for t in (*problem.params, bias)]
    *params, bias = leaves
    if fused:
        y = torch_srelu.srelu(x, *params, problem.dim, bias=bias, frozen=frozen)
    else:
        y = torch_srelu.srelu(
            execution.add_bias(x, bias, problem.dim), *params, problem.dim, frozen=frozen
        )
    return y.detach(), torch.autograd.grad(y, [x, *leaves], problem.grad)


@settings(max_examples=40)
@given(problem=problems(), frozen=st.booleans())
def test_fused_equals_added_first(backend: str, problem: Problem, frozen: bool) -> None:
    if not takes(backend, problem) or problem.x.dim() == 0:
        return
    if backend == "triton" and problem.x.dtype in TRUNCATION_ULPS:
        return  # the interpreter rounds x + bias otherwise than torch does
    problem = problem.to(device_of(backend))
    torch.manual_seed(0)
    bias = _bias(problem)
    with using(backend):
        y, grads = _run(problem, bias, True, frozen)
        expected_y, expected = _run(problem, bias, False, frozen)
    torch.testing.assert_close(y, expected_y, rtol=0, atol=0, equal_nan=True)
    for got, want in zip(grads[:5], expected[:5], strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    # Summed before the terms are rounded to the dtype of x, or after it.
    size = reference.over_channels(grads[0].double().abs(), problem.dim)
    slack = rounding(problem.x, expected[5].double(), bias.dtype, size)
    slack = slack + torch.finfo(problem.x.dtype).eps * size
    assert bool(((grads[5].double() - expected[5].double()).abs() <= slack).all())


def _biased_problem(backend: str, layout: str = "contiguous"):
    x, params = double_problem(backend, layout)
    bias = torch.tensor([1, 0, -2], dtype=torch.double, device=x.device)
    return x, [*params, bias.requires_grad_()]


def test_gradients_of_both_orders(backend: str) -> None:
    x, (*params, bias) = _biased_problem(backend)

    def function(x, t_r, a_r, t_l, a_l, bias):
        return torch_srelu.srelu(x, t_r, a_r, t_l, a_l, bias=bias)

    with using(backend):
        assert gradcheck(function, (x, *params, bias), fast_mode=True)
        assert gradgradcheck(function, (x, *params, bias), fast_mode=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck(backend: str, layout: str) -> None:
    x, (*params, bias) = _biased_problem(backend, layout)
    with using(backend):
        opcheck(custom_ops.srelu, (x, *params, 1, False, bias), layout)
        tensors = [t.detach() for t in (torch.randn_like(x), x, *params)]
        for needs in ((True, True), (True, False), (False, False)):
            arguments = (*tensors, 1, *needs, bias.detach(), True)
            opcheck(custom_ops.srelu_backward, arguments, layout)


def test_compiled(backend: str) -> None:
    x, (*params, bias) = _biased_problem(backend)

    def function(x):
        return torch_srelu.srelu(x, *params, bias=bias).square().sum()

    with using(backend):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        leaves = [x, *params, bias]
        got = torch.autograd.grad(compiled(x), leaves)
        torch.testing.assert_close(got, torch.autograd.grad(function(x), leaves))


def test_bad_biases(backend: str) -> None:
    x, (*params, _) = _biased_problem(backend)
    for bias, error, match in (
        (
            torch.zeros(4),
            ValueError,
            r"one value for each channel in dim=1.*\(2, 3, 4, 2\).*\(4,\)",
        ),
        (torch.zeros(3, dtype=torch.int64), TypeError, "floating-point"),
        ([0.0] * 3, TypeError, "1-D tensor, got list"),
    ):
        with pytest.raises(error, match=match):
            torch_srelu.srelu(x, *params, bias=bias)  # type: ignore[arg-type]
