"""The backward operator fused with its neighbours in a network, on every backend."""

import pytest
import torch
from torch import Tensor

from checks import (
    BACKENDS,
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

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

# How the kernel gets SReLU's input.
INPUTS = ("saved", "recomputed", "recomputed with a residual")


def norm_of(source: str, z: Tensor, affine: Tensor, residual: Tensor) -> BatchNormInput:
    """Mean, scale and shift are rows of ``affine``, as far as they are needed."""
    if source == "saved":
        return BatchNormInput(z, affine[0])
    return BatchNormInput(z, *affine, residual if source == "recomputed with a residual" else None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_second_gradient(backend: str, layout: str) -> None:
    x, params = double_problem(backend, layout)
    grad, second = torch.randn_like(x), torch.randn_like(x)
    with using(backend), torch.no_grad():
        arguments = (grad, second, x, *params, 1, True, *[None] * 5)
        opcheck(custom_ops.srelu_backward_fused, arguments, layout)
        *got, sums = custom_ops.srelu_backward_fused(*arguments)
        expected = custom_ops.srelu_backward(grad + second, x, *params, 1, True, True)
    torch.testing.assert_close(tuple(got), expected)
    assert sums.numel() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("grads", [1, 2])
@pytest.mark.parametrize("source", INPUTS)
def test_batch_norm(backend: str, layout: str, grads: int, source: str) -> None:
    x, params = double_problem(backend, layout)
    grad, second = torch.randn_like(x), torch.randn_like(x) if grads == 2 else None
    z, residual = (lay_out(torch.randn_like(x), layout) for _ in range(2))
    affine = torch.randn(3, 3).to(x)
    norm = norm_of(source, z, affine, residual)
    with using(backend), torch.no_grad():
        saved = x if source == "saved" else None
        arguments = (grad, second, saved, *params, 1, True, *norm)
        opcheck(custom_ops.srelu_backward_fused, arguments, layout)
        grad_x, rows, sums = custom_ops.srelu_backward_fused(*arguments)
        frozen = custom_ops.srelu_backward_fused(*arguments[:8], False, *norm)
    mean, scale, shift = (n[:, None, None] for n in affine)
    if saved is None:
        x = (z - mean) * scale + shift + (residual if source == "recomputed with a residual" else 0)
    total = grad if second is None else grad + second
    with using("reference"), torch.no_grad():
        expected = custom_ops.srelu_backward(total, x, *params, 1, True, True)
    torch.testing.assert_close((grad_x, rows), expected)
    expected_sums = [expected[0].sum((0, 2, 3)), (expected[0] * (z - mean)).sum((0, 2, 3))]
    torch.testing.assert_close(sums, torch.stack(expected_sums))
    assert torch.equal(frozen[0], grad_x)
    assert torch.equal(frozen[2], sums)
    assert frozen[1].numel() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grads", [1, 2])
@pytest.mark.parametrize("source", INPUTS)
def test_three_way(backend: str, dtype: torch.dtype, grads: int, source: str) -> None:
    """Tensors of many blocks, and repeated to the bit."""
    saved = source == "saved"
    if INTERPRETED and backend == "triton" and dtype == torch.bfloat16 and not saved:
        pytest.skip("the interpreter truncates: a value near a threshold can change sides")
    torch.manual_seed(0)
    z, x, grad, second, residual = (
        lay_out(torch.randn(6, 40, 5, 7, dtype=dtype), "channels_last") for _ in range(5)
    )
    # Few bits, so that SReLU's input is the same whether product and sum are rounded once, as on a
    # GPU, or twice: values near a threshold would change sides.
    z, affine = (torch.round(8 * t) / 8 for t in (z, torch.randn(3, 40)))
    norm = norm_of(source, z, affine, residual)
    if not saved:
        x = norm.output(1)
    second = second if grads == 2 else None
    total = grad if second is None else grad + second
    problem = Problem(x, [torch.randn(40) for _ in range(4)], total, 1)
    given = (grad, second, x if saved else None, *problem.params, 1, True, *norm)
    device = device_of(backend)
    arguments = [a.to(device) if isinstance(a, Tensor) else a for a in given]
    with using(backend):
        first = custom_ops.srelu_backward_fused(*arguments)
        again = custom_ops.srelu_backward_fused(*arguments)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    grad_x, rows, sums = (t.cpu() for t in first)
    if grads == 1 or dtype == torch.float32:  # else the sum was rounded for the reference alone
        assert_right(problem, problem.plain(dtype)[0], [grad_x, *rows])
    exact = problem.plain(torch.float64)[1][0]
    terms = torch.stack([exact, exact * (z.double() - norm.mean.double()[:, None, None])])
    rounded = torch.finfo(dtype).eps * (1 + TRUNCATION_ULPS.get(dtype, 0))
    slack = rounded + ULPS * torch.finfo(torch.float32).eps
    error = (sums - terms.sum((1, 3, 4))).abs()
    assert bool((error <= slack * terms.abs().sum((1, 3, 4))).all())


def test_shared_parameters(backend: str) -> None:
    x, _ = double_problem(backend)
    shared = [torch.tensor([v]).to(x) for v in (0.5, 1.5, -0.5, 0.2)]
    with using(backend), torch.no_grad():
        given = (torch.randn_like(x), None, x, *shared, 1, True, x, torch.randn(3).to(x))
        opcheck(custom_ops.srelu_backward_fused, (*given, None, None, None), "contiguous")


@pytest.mark.parametrize(
    "mean", [torch.zeros(2, dtype=torch.double), torch.zeros(3)], ids=["too few", "float32"]
)
def test_values_per_channel_must_fit(backend: str, mean: Tensor) -> None:
    x, params = double_problem(backend)
    given = (x, None, x, *params, 1, True, x, mean.to(x.device), None, None, None)
    with (
        using(backend),
        torch.no_grad(),
        pytest.raises(ValueError, match="value per channel"),
    ):
        custom_ops.srelu_backward_fused(*given)


def test_an_input_is_saved_or_recomputed(backend: str) -> None:
    x, params = double_problem(backend)
    affine = torch.randn(3, 3).to(x)
    norms = {"neither": (None,) * 6, "half": (None, x, affine[0], None, None, None)}
    norms |= {"both": (x, x, *affine, None), "no mean": (x, x, None, None, None, None)}
    for given, *norm in norms.values():
        with using(backend), torch.no_grad(), pytest.raises(ValueError, match="pass x, or z"):
            custom_ops.srelu_backward_fused(x, None, given, *params, 1, True, *norm)
