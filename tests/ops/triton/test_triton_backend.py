"""The Triton kernels: every access pattern, grids, and sizes past 32 bits."""

from collections.abc import Iterator

import pytest
import torch

from checks import DEVICE, Problem, assert_three_way
from torch_srelu.ops import layout
from torch_srelu.ops.arguments import Needs
from torch_srelu.ops.triton import triton_backend as triton
from torch_srelu.ops.triton import triton_tiling
from torch_srelu.ops.triton.triton_tiling import backward_tiling, forward_tiling, is_runs


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
def test_runs_and_columns(shape, runs: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    view = layout.view(x, shape[1], 1)
    assert view is not None
    assert is_runs(view) is runs
    params = [torch.randn(shape[1]) for _ in range(4)]
    assert_three_way(Problem(x, params, torch.randn(shape), 1), "triton")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 1025),  # every tile but the first has two channels, one the last and the first
        (1, 2, 1023 + 1024),  # as long as a tile in 16 bits, less one
        (5, 1027),
        (1, 2, 33, 64 + 3),
    ],
)
def test_spans(shape, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    channels = shape[1] if len(shape) > 2 else shape[0]
    dim = 1 if len(shape) > 2 else 0
    view = layout.view(torch.empty(shape), channels, dim)
    assert view is not None
    assert forward_tiling(view, dtype).pattern == "spans"
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    params = [torch.randn(channels, dtype=wide) for _ in range(4)]
    x, grad = torch.randn(2, *shape, dtype=wide).to(dtype)
    assert_three_way(Problem(x, params, grad, dim), "triton")


def test_spans_with_a_bias() -> None:
    torch.manual_seed(0)
    x = torch.randint(-64, 64, (2, 3, 1025), device=DEVICE) / 16  # no sum rounds
    params = [torch.randn(3, device=DEVICE) for _ in range(4)]
    bias = torch.randint(-64, 64, (3,), device=DEVICE) / 16
    view = layout.view(x, 3, 1)
    assert view is not None
    got = triton.forward(x, params, view, bias)
    assert torch.equal(got, triton.forward(x + bias[:, None], params, view))


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small tensors are tiled like large ones."""
    triton._backward_launch.cache_clear()
    monkeypatch.setattr(triton_tiling, "SMALL_TENSOR", 0)
    monkeypatch.setattr(triton_tiling, "MAX_SUMS_SHARE", 1)
    monkeypatch.setattr(triton_tiling, "MAX_SUMS_SHARE_OF_RUNS", 1)
    monkeypatch.setattr(triton_tiling, "MIN_ACTIVE_THREADS", 0)
    yield
    triton._backward_launch.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("small_rows")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "shape",
    [
        (64, 5, 14, 14),  # in 16 bits vectors of four
        (33, 9, 28, 28),  # an odd number of rows; fewer vectors than threads in the last block
        (40, 3, 6, 6),
        (3, 128, 6, 6),  # no thread without work, but the last step has no second row
        (1, 2, 20, 6),  # one row
    ],
)
def test_rows(shape, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    channels = shape[1]
    view = layout.view(torch.empty(shape), channels, 1)
    assert view is not None
    assert backward_tiling(view, dtype, 2, norm=False).pattern == "rows"
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    params = [torch.randn(channels, dtype=wide) for _ in range(4)]
    x, grad = torch.randn(2, *shape, dtype=wide).to(dtype)
    assert_three_way(Problem(x, params, grad, 1), "triton")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "complete"),  # whether all steps are
    [
        ((1000, 64), False),  # columns
        ((4096, 64), True),
        ((50, 5, 14, 14), False),  # rows
        ((40, 128, 6, 6), True),
    ],
)
def test_grids_with_a_third_axis(shape, complete: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a group has more splits than a grid's second axis; some programs have nothing to do."""
    monkeypatch.setattr(triton_tiling, "MAX_GRID_Y", 3)
    triton._forward_launch.cache_clear()
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)
    params = [torch.randn(shape[1], device=DEVICE) for _ in range(4)]
    view = layout.view(x, shape[1], 1)
    assert view is not None
    launch = triton._forward_launch(view, x.dtype)
    groups, height, depth = launch.grid
    assert not launch.meta["EVEN"]
    many = triton.forward(x, params, view)
    triton._forward_launch.cache_clear()
    monkeypatch.undo()
    assert depth > 1
    launch = triton._forward_launch(view, x.dtype)
    one = launch.grid
    assert launch.meta["EVEN"] is complete
    assert one == (groups, one[1], 1)
    assert one[1] < height * depth
    assert torch.equal(many, triton.forward(x, params, view))


@pytest.mark.usefixtures("small_rows")
@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)])
def test_rows_compute_what_is_needed(needed) -> None:
    test_computes_what_is_needed((9, 5, 100), needed)


@pytest.mark.usefixtures("small_rows")
def test_rows_with_a_bias_and_a_second_gradient() -> None:
    torch.manual_seed(0)
    shape = (9, 5, 10, 10)
    # Few bits, so that no sum rounds.
    x, grad, second_grad = torch.randint(-64, 64, (3, *shape), device=DEVICE) / 16
    params = [torch.randint(-64, 64, (5,), device=DEVICE) / 16 for _ in range(4)]
    bias = torch.randint(-64, 64, (5,), device=DEVICE) / 16
    view = layout.view(x, 5, 1)
    assert view is not None
    grad_x, rows = triton.backward(
        grad, x, params, view, Needs(True, True, True), bias, second_grad
    )
    shifted = x + bias[:, None, None]
    expected_x, expected = triton.backward(
        grad + second_grad, shifted, params, view, Needs(True, True)
    )
    assert torch.equal(grad_x, expected_x)
    assert torch.equal(rows[:4], expected)
    torch.testing.assert_close(rows[4], grad_x.double().sum((0, 2, 3)).float())


@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", [(2, 5, 256), (7, 5)])
def test_computes_what_is_needed(shape, needed) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(2, *shape, device=DEVICE)
    params = [torch.randn(5, device=DEVICE) for _ in range(4)]
    view = layout.view(x, 5, 1)
    assert view is not None
    grad_x, grads = triton.backward(grad, x, params, view, Needs(*needed))
    full_x, full = triton.backward(grad, x, params, view, Needs(True, True))
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
