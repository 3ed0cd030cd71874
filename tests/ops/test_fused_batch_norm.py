"""SReLU's backward pass with what lies beside it in a network, by every execution."""

import pytest
import torch
from torch import Tensor

from checks import (
    EXECUTIONS,
    INTERPRETED,
    LAYOUTS,
    TRUNCATION_ULPS,
    ULPS,
    Problem,
    assert_right,
    device_of,
    double_problem,
    lay_out,
    opcheck,
    using,
)
from torch_srelu.ops import custom_ops
from torch_srelu.ops.fused_batch_norm import BatchNormInput

pytestmark = pytest.mark.parametrize("execution", EXECUTIONS)

# What SReLU's input is to be had from.
MADE_OF = ("itself", "what was normalised", "a residual too")


def norm_of(made_of: str, z: Tensor, numbers: Tensor, residual: Tensor) -> BatchNormInput:
    """Mean, scale and shift are rows of ``numbers``, as far as they are given."""
    if made_of == "itself":
        return BatchNormInput(z, numbers[0])
    return BatchNormInput(z, *numbers, residual if made_of == "a residual too" else None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_in_two_parts(execution: str, layout: str) -> None:
    x, params = double_problem(execution, layout)
    part, more = torch.randn_like(x), torch.randn_like(x)
    with using(execution), torch.no_grad():
        arguments = (part, more, x, *params, 1, True, *[None] * 5)
        opcheck(custom_ops.srelu_backward_fused, arguments, layout)
        *got, moments = custom_ops.srelu_backward_fused(*arguments)
        expected = custom_ops.srelu_backward(part + more, x, *params, 1, True, True)
    torch.testing.assert_close(tuple(got), expected)
    assert moments.numel() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("made_of", MADE_OF)
def test_a_normalisation_before_it(execution: str, layout: str, parts: int, made_of: str) -> None:
    x, params = double_problem(execution, layout)
    part, more = torch.randn_like(x), torch.randn_like(x) if parts == 2 else None
    z, residual = (lay_out(torch.randn_like(x), layout) for _ in range(2))
    numbers = torch.randn(3, 3).to(x)
    norm = norm_of(made_of, z, numbers, residual)
    with using(execution), torch.no_grad():
        kept = x if made_of == "itself" else None
        arguments = (part, more, kept, *params, 1, True, *norm)
        opcheck(custom_ops.srelu_backward_fused, arguments, layout)
        grad_x, rows, moments = custom_ops.srelu_backward_fused(*arguments)
        resting = custom_ops.srelu_backward_fused(*arguments[:8], False, *norm)
    mean, scale, shift = (n[:, None, None] for n in numbers)
    if kept is None:
        x = (z - mean) * scale + shift + (residual if made_of == "a residual too" else 0)
    grad = part if more is None else part + more
    with using("reference"), torch.no_grad():
        expected = custom_ops.srelu_backward(grad, x, *params, 1, True, True)
    torch.testing.assert_close((grad_x, rows), expected)
    sums = [expected[0].sum((0, 2, 3)), (expected[0] * (z - mean)).sum((0, 2, 3))]
    torch.testing.assert_close(moments, torch.stack(sums))
    assert torch.equal(resting[0], grad_x)
    assert torch.equal(resting[2], moments)
    assert resting[1].numel() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("made_of", MADE_OF)
def test_three_way(execution: str, dtype: torch.dtype, parts: int, made_of: str) -> None:
    """Tensors of many blocks, and repeated to the bit."""
    kept = made_of == "itself"
    if INTERPRETED and execution == "triton" and dtype == torch.bfloat16 and not kept:
        pytest.skip("the interpreter truncates: a value near a threshold can change sides")
    torch.manual_seed(0)
    z, x, part, more, residual = (
        lay_out(torch.randn(6, 40, 5, 7, dtype=dtype), "channels_last") for _ in range(5)
    )
    # Few bits, so that SReLU's input is the same whether product and sum are rounded once, as on a
    # GPU, or twice: values near a threshold would change sides.
    z, numbers = (torch.round(8 * t) / 8 for t in (z, torch.randn(3, 40)))
    norm = norm_of(made_of, z, numbers, residual)
    if not kept:
        x = norm.output(1)
    grad = part + more if parts == 2 else part
    problem = Problem(x, [torch.randn(40) for _ in range(4)], grad, 1)
    more = more if parts == 2 else None
    given = (part, more, x if kept else None, *problem.params, 1, True, *norm)
    device = device_of(execution)
    arguments = [a.to(device) if isinstance(a, Tensor) else a for a in given]
    with using(execution):
        first = custom_ops.srelu_backward_fused(*arguments)
        again = custom_ops.srelu_backward_fused(*arguments)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    grad_x, rows, moments = (t.cpu() for t in first)
    if parts == 1 or dtype == torch.float32:  # else the sum was rounded for the reference alone
        assert_right(problem, problem.plain(dtype)[0], [grad_x, *rows])
    exact = problem.plain(torch.float64)[1][0]
    terms = torch.stack([exact, exact * (z.double() - norm.mean.double()[:, None, None])])
    rounded = torch.finfo(dtype).eps * (1 + TRUNCATION_ULPS.get(dtype, 0))
    slack = rounded + ULPS * torch.finfo(torch.float32).eps
    error = (moments - terms.sum((1, 3, 4))).abs()
    assert bool((error <= slack * terms.abs().sum((1, 3, 4))).all())


def test_a_unit_for_all_channels(execution: str) -> None:
    x, _ = double_problem(execution)
    shared = [torch.tensor([v]).to(x) for v in (0.5, 1.5, -0.5, 0.2)]
    with using(execution), torch.no_grad():
        given = (torch.randn_like(x), None, x, *shared, 1, True, x, torch.randn(3).to(x))
        opcheck(custom_ops.srelu_backward_fused, (*given, None, None, None), "contiguous")


@pytest.mark.parametrize(
    "mean", [torch.zeros(2, dtype=torch.double), torch.zeros(3)], ids=["too few", "float32"]
)
def test_numbers_must_fit(execution: str, mean: Tensor) -> None:
    x, params = double_problem(execution)
    given = (x, None, x, *params, 1, True, x, mean.to(x.device), None, None, None)
    with (
        using(execution),
        torch.no_grad(),
        pytest.raises(ValueError, match="value per channel"),
    ):
        custom_ops.srelu_backward_fused(*given)


def test_an_input_is_given_or_made(execution: str) -> None:
    x, params = double_problem(execution)
    numbers = torch.randn(3, 3).to(x)
    norms = {"neither": (None,) * 6, "half": (None, x, numbers[0], None, None, None)}
    norms |= {"both": (x, x, *numbers, None), "no mean": (x, x, None, None, None, None)}
    for given, *norm in norms.values():
        with using(execution), torch.no_grad(), pytest.raises(ValueError, match="give x, or else"):
            custom_ops.srelu_backward_fused(x, None, given, *params, 1, True, *norm)
