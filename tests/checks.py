"""Backends, inputs and tolerances of the operator's tests.

The three-way rule: a backend may be at most twice as far from the float64 reference as plain
torch in the same precision is, plus a few units in the last place of what it had to add up.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

import interpreting  # noqa: F401
import torch_srelu
from torch_srelu.ops import reference
from torch_srelu.ops.cpu import cpu_backend as cpu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

# Every backend that can run on this machine.
BACKENDS = ["reference", *(f"cpu-{isa}" for isa in cpu.isas()), "triton"]

# Units in the last place, of the arithmetic, that rounding the terms of a sum may cost.
ULPS = 4
# Triton's interpreter truncates float32 to bfloat16 where the GPU rounds.
TRUNCATION_ULPS = {torch.bfloat16: 1} if INTERPRETED else {}


def device_of(backend: str) -> str:
    return DEVICE if backend == "triton" else "cpu"


def takes(backend: str, problem: Problem) -> bool:
    """Whether a backend computes such a problem, and in reasonable time."""
    if backend == "triton":
        return not INTERPRETED or problem.x.numel() <= 3000
    return not backend.startswith("cpu") or problem.x.dtype in cpu.DTYPES


@contextlib.contextmanager
def using(backend: str) -> Iterator[None]:
    """Computes with one of `BACKENDS`."""
    name, _, isa = backend.partition("-")
    cpu.set_isa(isa or None)
    try:
        with torch_srelu.use_backend(name):
            yield
    finally:
        cpu.set_isa(None)


@dataclass
class Problem:
    """An input, its parameters and the gradient of the output."""

    x: Tensor
    params: list[Tensor]
    grad: Tensor
    dim: int

    def to(self, device: str) -> Problem:
        # `to` would keep the layout of dense tensors only; these moves keep all strides
        return Problem(
            _move(self.x, device),
            [p.to(device) for p in self.params],
            _move(self.grad, device),
            self.dim,
        )

    def run(self, function=torch_srelu.srelu) -> tuple[Tensor, list[Tensor]]:
        """The output and the five gradients, by `torch_srelu.srelu` or a compiled version of it."""
        x = self.x.detach().requires_grad_()
        params = [p.detach().requires_grad_() for p in self.params]
        y = function(x, *params, dim=self.dim)
        return y.detach(), list(torch.autograd.grad(y, [x, *params], self.grad))

    @functools.cached_property
    def expected(self) -> tuple:
        """The same by the reference in float64 and in the dtype of ``x``, and `magnitudes`."""
        return self.plain(torch.float64), self.plain(self.x.dtype), magnitudes(self)

    def plain(self, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        """The same by the reference alone, with everything in ``dtype``."""
        x, *params = (t.to(dtype) for t in (self.x, *self.params))
        y = reference.srelu(x, *params, self.dim)
        return y, list(reference.srelu_backward(self.grad.to(dtype), x, *params, self.dim))


def _move(t: Tensor, device: str) -> Tensor:
    if t.device.type == device:
        return t
    base = torch.empty(_extent(t), dtype=t.dtype, device=device)
    moved = base.as_strided(t.shape, t.stride())
    # an expanded tensor has many indices for one place: writing one of each is enough
    once = tuple(slice(0, 1) if s == 0 else slice(None) for s in t.stride())
    moved[once].copy_(t[once])
    return moved


def _extent(t: Tensor) -> int:
    return (
        1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    )


def random_inputs(
    dtype: torch.dtype = torch.float32, channels: int = 6, requires_grad: bool = True
) -> tuple[Tensor, list[Tensor]]:
    """Images and four parameters in float32."""
    torch.manual_seed(0)
    x = torch.randn(4, channels, 5, 5, dtype=dtype, device=DEVICE)
    params = [torch.randn(channels, device=DEVICE) for _ in range(4)]
    for t in (x, *params):
        t.requires_grad_(requires_grad)
    return x, params


def double_problem(backend: str, layout: str = "contiguous") -> tuple[Tensor, list[Tensor]]:
    """A float64 input and four parameters that require gradients, for finite differences."""
    torch.manual_seed(1)
    device = device_of(backend)
    x = lay_out(torch.randn(2, 3, 4, 2, dtype=torch.double, device=device), layout)
    # thresholds equal, ordered, crossed; slopes of 0 and 1 included
    params = [
        torch.tensor(values, dtype=torch.double, device=device)
        for values in ([0.3, 0.8, -0.7], [1.0, 0.0, 1.7], [0.3, -0.4, 0.6], [0.0, 0.2, -1.0])
    ]
    return x.detach().requires_grad_(), [p.requires_grad_() for p in params]


def opcheck(operator, arguments: tuple, layout: str) -> None:
    """torch's checks of an operator; the slowest, of traced code, in three of the layouts."""
    quick = ("test_schema", "test_autograd_registration", "test_faketensor")
    more = ("test_aot_dispatch_dynamic",) if layout in TRACED else ()
    torch.library.opcheck(operator, arguments, test_utils=(*quick, *more))


def assert_three_way(problem: Problem, backend: str) -> None:
    """The output and the five gradients of ``backend`` against the float64 reference."""
    with using(backend):
        assert_right(problem, *problem.to(device_of(backend)).run())


def assert_right(problem: Problem, y: Tensor, grads: list[Tensor]) -> None:
    """The output and the five gradients against the float64 reference."""
    (exact_y, exact_grads), (plain_y, plain_grads), (added_y, *added) = problem.expected
    assert y.dtype == problem.x.dtype
    assert y.shape == problem.x.shape
    assert y.stride() == torch.empty_like(problem.x).stride()
    slack = rounding(problem.x, exact_y, problem.x.dtype, added_y)
    _assert_within(y, exact_y, plain_y, slack, "output")
    like = (problem.x, *problem.params)
    for name, got, exact, plain, leaf, size in zip(
        ("x", "t_r", "a_r", "t_l", "a_l"), grads, exact_grads, plain_grads, like, added, strict=True
    ):
        assert got.dtype == leaf.dtype, name
        assert got.shape == leaf.shape, name
        slack = rounding(problem.x, exact, leaf.dtype, size)
        # plain torch in low precision rounds its parameters too, ours may be finer
        _assert_within(got, exact, plain.to(leaf.dtype), slack, f"gradient of {name}")


def magnitudes(problem: Problem) -> list[Tensor]:
    """The sum of the magnitudes of all terms that were added: for the output and each gradient."""
    x, grad, *params = (t.double() for t in (problem.x, problem.grad, *problem.params))
    shape = [1] * x.dim()
    if params[0].shape[0] > 1:
        shape[problem.dim] = -1
    at = reference.regions(x, *(p.reshape(shape) for p in params))
    output = (at.slope * x).abs() + at.intercept.abs()
    # within a channel all terms of a sum have one sign, but for that of the gradient of the output
    return [
        output,
        *(g.abs() for g in reference.srelu_backward(grad.abs(), x, *params, problem.dim)),
    ]


def rounding(x: Tensor, exact: Tensor, dtype: torch.dtype, magnitude: Tensor) -> Tensor:
    """What correct rounding of the result, and of the terms on the way to it, may cost."""
    info, arithmetic = torch.finfo(dtype), torch.finfo(reference.compute_dtype(x))
    result = exact.abs() * info.eps * (1 + TRUNCATION_ULPS.get(dtype, 0)) + info.tiny
    return result + ULPS * arithmetic.eps * magnitude


def _assert_within(got: Tensor, exact: Tensor, plain: Tensor, slack: Tensor, what: str) -> None:
    got, exact, plain = got.detach().cpu().double(), exact.double(), plain.double()
    torch.testing.assert_close(got.isnan(), exact.isnan(), msg=f"{what}: NaN in other places")
    infinite = exact.isinf()
    assert torch.equal(got[infinite], exact[infinite]), f"{what}: infinities differ"
    finite = exact.isfinite() & plain.isfinite()
    error, plain_error = (got - exact).abs()[finite], (plain - exact).abs()[finite]
    allowed = 2 * plain_error + slack.double()[finite]
    assert bool((error <= allowed).all()), (
        f"{what}: off by {float((error - allowed).max()):.3g} more than allowed"
    )


# ---- inputs ----

LAYOUTS = ("contiguous", "channels_last", "permuted", "sliced", "expanded")
TRACED = ("contiguous", "channels_last", "expanded")


def lay_out(x: Tensor, layout: str) -> Tensor:
    """The values of ``x`` in another memory layout (an expanded one repeats its first slice)."""
    if layout == "channels_last" and x.dim() in (4, 5):
        fmt = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=fmt)
    if layout == "permuted" and x.dim() > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "sliced" and x.dim() > 0:
        wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), torch.nan)
        wide[..., ::2] = x
        return wide[..., ::2]
    if layout == "expanded" and x.dim() > 0 and x.shape[0]:
        return x[:1].expand(x.shape)
    return x.contiguous()


# Each in turn: the paper's start, crossed and equal thresholds, slopes of every kind.
SLOPES = (-1.0, 0.0, 0.2, 1.0, 1.7)


@st.composite
def problems(draw: st.DrawFn, dtypes=DTYPES, max_side: int = 6, special: bool = False) -> Problem:
    """Tensors of rank 0 to 5 in every layout, with every kind of parameter."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, max_side), min_size=0, max_size=5))
    if draw(st.booleans()) and shape:
        shape[-1] *= 97  # some rows longer than a vector, a block or a tile
    shared = not shape or draw(st.booleans())
    dim = draw(st.integers(-len(shape), len(shape) - 1)) if shape else 0
    channels = 1 if shared else shape[dim]
    if channels == 0:
        channels, shape[dim] = 1, 1
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=random)

    def choose(options: tuple[float, ...]) -> Tensor:
        return torch.tensor(options)[torch.randint(len(options), (channels,), generator=random)]

    t_l = normal(channels)
    gap = choose((0.0, 1.0, -1.0))  # equal, ordered and crossed thresholds, side by side
    t_r = t_l + gap * normal(channels).abs()
    params = [t_r, choose(SLOPES), t_l, choose(SLOPES)]
    param_dtype = draw(st.sampled_from((torch.float32, dtype)))
    params = [p.to(param_dtype) for p in params]
    x = normal(*shape).to(dtype)
    if x.numel():
        _place_on_thresholds(x, params, dim, random)
        if special:
            flat = x.view(-1)
            for value in (torch.nan, torch.inf, -torch.inf):
                flat[int(torch.randint(x.numel(), (), generator=random))] = value
    layout = draw(st.sampled_from(LAYOUTS))
    grad = lay_out(normal(*shape).to(dtype), draw(st.sampled_from(LAYOUTS)))
    return Problem(lay_out(x, layout), params, grad, dim)


def _place_on_thresholds(
    x: Tensor, params: list[Tensor], dim: int, random: torch.Generator
) -> None:
    """Puts about a third of ``x`` exactly on a threshold of its channel."""
    pick = torch.randint(6, x.shape, generator=random)
    shape = [1] * x.dim()
    if params[0].shape[0] > 1:
        shape[dim] = -1
    for which, p in ((0, params[0]), (1, params[2])):
        x.copy_(torch.where(pick == which, p.to(x.dtype).reshape(shape), x))
