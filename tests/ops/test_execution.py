"""Every backend against the float64 reference: layouts, dtypes, special values, derivatives."""

import functools

import pytest
import torch
from hypothesis import assume, given, settings
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import torch_srelu
from checks import (
    BACKENDS,
    LAYOUTS,
    Problem,
    assert_three_way,
    device_of,
    double_problem,
    lay_out,
    opcheck,
    problems,
    takes,
    using,
)
from torch_srelu.ops import custom_ops

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@settings(max_examples=80)
@given(problem=problems())
def test_values_and_gradients(backend: str, problem: Problem) -> None:
    assume(takes(backend, problem))
    assert_three_way(problem, backend)


@settings(max_examples=40)
@given(problem=problems(special=True, max_side=4))
def test_nan_and_infinity(backend: str, problem: Problem) -> None:
    """NaN in, NaN out; infinities follow the tail, and a flat tail stays flat."""
    assume(takes(backend, problem))
    with using(backend):
        y, grads = problem.to(device_of(backend)).run()
    expected_y, expected = problem.plain(torch.float64)
    torch.testing.assert_close(y.cpu().isnan(), expected_y.isnan())
    torch.testing.assert_close(y.cpu().isinf(), expected_y.isinf())
    for got, want in zip(grads, expected, strict=True):
        torch.testing.assert_close(got.cpu().isfinite(), want.isfinite())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("run", [1, 64])  # neighbours in memory of one channel
def test_with_unit_right_slope_the_right_threshold_changes_no_bit(
    backend: str, run: int, dtype: torch.dtype
) -> None:
    """Also where it crosses the left one and inputs lie on either: unfreezing changes no output."""
    torch.manual_seed(0)
    device, channels = device_of(backend), 40
    t_l, a_l, away = torch.randn(3, channels, device=device)
    t_l = t_l.to(dtype).float()
    one, x = torch.ones_like(t_l), torch.randn(3, channels, run, device=device)
    x[1], x[2] = t_l[:, None], (t_l + away)[:, None]
    with using(backend):
        y, *others = (
            torch_srelu.srelu(x.to(dtype), t_r, one, t_l, a_l)
            for t_r in (t_l.abs() + 9, t_l, t_l + away, t_l - 9)
        )
    assert all(torch.equal(y, other) for other in others)


@functools.lru_cache(maxsize=1)  # shared by all backends, with its expected results
def _large_problem(shape: tuple[int, ...], layout: str, shared: bool) -> Problem:
    torch.manual_seed(0)
    x = lay_out(torch.randn(shape), layout)
    channels = 1 if shared else shape[1]
    params = [torch.randn(channels) for _ in range(4)]
    return Problem(x, params, torch.randn(shape), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [(64, 40, 9, 8), (64, 40, 32, 16), (2, 3, 5003), (5000, 33), (70000, 3)]
)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("shared", [False, True])
def test_tensors_of_many_blocks(backend: str, shape, layout: str, shared: bool) -> None:
    """Large enough for several chunks, tiles and flushes, in both access patterns."""
    if backend == "triton" and device_of(backend) == "cpu":  # the interpreter is slow
        part = 16 if len(shape) > 2 else 32
        shape = (max(2, shape[0] // part), *shape[1:])
    assert_three_way(_large_problem(shape, layout, shared), backend)


def test_gradcheck(backend: str) -> None:
    x, params = double_problem(backend)
    with using(backend):
        assert gradcheck(torch_srelu.srelu, (x, *params), check_batched_grad=True)


def test_gradgradcheck(backend: str) -> None:
    x, params = double_problem(backend)
    with using(backend):
        # the interpreter is slow; fast mode checks a random direction instead of every one
        fast = backend == "triton" and device_of(backend) == "cpu"
        assert gradgradcheck(torch_srelu.srelu, (x, *params), fast_mode=fast)


def _finite_difference(function, points, tangents, step=1e-6):
    plus = function(*(p + step * t for p, t in zip(points, tangents, strict=True)))
    minus = function(*(p - step * t for p, t in zip(points, tangents, strict=True)))
    return (plus - minus) / (2 * step)


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_forward_mode(backend: str, how: str) -> None:
    """jvp, plain and inside torch.compile, against finite differences: never silently zero."""
    x, params = double_problem(backend)
    points = tuple(t.detach() for t in (x, *params))
    tangents = tuple(torch.randn_like(p) for p in points)

    def jvp(*both):
        return torch.func.jvp(torch_srelu.srelu, both[:5], both[5:])[1]

    with using(backend):
        run = torch.compile(jvp, fullgraph=True, backend="aot_eager") if how == "compiled" else jvp
        expected = _finite_difference(torch_srelu.srelu, points, tangents)
        torch.testing.assert_close(run(*points, *tangents), expected, rtol=1e-6, atol=1e-6)


def test_dual_tensors(backend: str) -> None:
    x, params = double_problem(backend)
    tangent = torch.randn_like(x)
    with using(backend), forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), tangent)
        got = forward_ad.unpack_dual(torch_srelu.srelu(dual, *params)).tangent
    with using(backend):
        (expected,) = torch.autograd.grad(torch_srelu.srelu(x, *params), x, torch.ones_like(x))
    torch.testing.assert_close(got, tangent * expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck(backend: str, layout: str) -> None:
    x, params = double_problem(backend, layout)
    with using(backend):
        opcheck(custom_ops.srelu, (x, *params, 1, False), layout)
        arguments = (torch.randn_like(x), x, *params, 1)
        opcheck(custom_ops.srelu_backward, (*arguments, True, True), layout)
        opcheck(custom_ops.srelu_backward, (*arguments, True, False), layout)


@pytest.mark.parametrize("shape", [(8, 24, 300), (1500, 24)])
def test_parameter_gradients_repeat_to_the_bit(backend: str, shape) -> None:
    torch.manual_seed(0)
    if backend == "triton" and device_of(backend) == "cpu":  # the interpreter is slow
        shape = (shape[0], 3, *shape[2:])
    channels = shape[1]
    problem = Problem(
        torch.randn(shape), [torch.randn(channels) for _ in range(4)], torch.randn(shape), 1
    )
    problem = problem.to(device_of(backend))
    with using(backend):
        first = problem.run()[1]
        for _ in range(2):
            assert all(torch.equal(a, b) for a, b in zip(first, problem.run()[1], strict=True))


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_forward_has_the_bits_of_the_reference(backend: str, layout: str) -> None:
    """All instruction sets agree; a GPU, which has a fused multiply-add, is one rounding better."""
    if device_of(backend) == "cuda":
        pytest.skip("fused multiply-add")
    torch.manual_seed(0)
    x = lay_out(3 * torch.randn(4, 20, 16, 17), layout)
    problem = Problem(x, [torch.randn(20) for _ in range(4)], torch.randn_like(x), 1)
    with using(backend):
        y, grads = problem.to(device_of(backend)).run()
    expected_y, expected = problem.plain(torch.float32)
    assert torch.equal(y.cpu(), expected_y)
    assert torch.equal(grads[0].cpu(), expected[0])
