"""What is special about the Triton kernels: both shapes of kernel, and sizes past 32 bits."""

import pytest
import torch

from checks import DEVICE, Problem, assert_three_way
from torch_srelu.ops import layout, triton
from torch_srelu.ops.triton_cuts import is_runs


@pytest.mark.parametrize(
    ("shape", "runs"),
    [
        ((2, 5, 16, 16), True),  # runs of 256, several to a tile
        ((2, 5, 4, 4), False),  # 16: too short
        ((2, 3, 257), False),  # no multiple of 16: no wide reads
        ((2, 3, 1025), True),  # likewise, but too long for one sum per column
        ((2, 3, 4096 + 16), True),  # several blocks to a run, the last one partial
        ((9, 300), False),
        ((300, 2), False),
    ],
)
def test_both_kernels(shape, runs: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    view = layout.view(x, shape[1], 1)
    assert view is not None
    assert is_runs(view) is runs
    params = [torch.randn(shape[1]) for _ in range(4)]
    assert_three_way(Problem(x, params, torch.randn(shape), 1), "triton")


@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", [(2, 5, 256), (7, 5)])
def test_computes_what_is_needed(shape, needed) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(2, *shape, device=DEVICE)
    params = [torch.randn(5, device=DEVICE) for _ in range(4)]
    view = layout.view(x, 5, 1)
    assert view is not None
    grad_x, grads = triton.backward(grad, x, params, view, *needed)
    full_x, full = triton.backward(grad, x, params, view, True, True)
    assert (grad_x is not None) is needed[0]
    assert (grads is not None) is needed[1]
    assert full_x is not None
    assert full is not None
    assert grad_x is None or torch.equal(grad_x, full_x)
    assert grads is None or torch.equal(grads, full)


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU with 32 GB")
@pytest.mark.parametrize("shape", [(2, 3, 360_000_016), (1_100_000_000, 2)])
def test_more_than_two_to_the_31_elements(shape) -> None:
    x = torch.zeros(shape, dtype=torch.bfloat16, device="cuda")
    x[-1, -1] = -5.0
    params = [
        torch.full((shape[1],), v, device="cuda", requires_grad=True) for v in (1.0, 1.0, -1.0, 0.5)
    ]
    import torch_srelu

    y = torch_srelu.srelu(x.requires_grad_(), *params)
    assert y[-1, -1].flatten()[-1].item() == -3.0
    assert int((y != 0).sum()) == x[-1, -1].numel()
    grads = torch.autograd.grad(y, [x, *params], torch.ones_like(y))
    assert grads[0][-1, -1].flatten()[-1].item() == 0.5
    expected = torch.zeros(shape[1])
    expected[-1] = 0.5 * x[-1, -1].numel()
    torch.testing.assert_close(grads[3].cpu(), expected, rtol=1e-5, atol=0.0)
