"""The checks in front of the operator: the same errors in eager and compiled, before any work."""

import contextlib
import warnings

import pytest
import torch
from torch import fx
from torch.autograd import forward_ad

import torch_srelu
from torch_srelu import SReLU


def p(n: int = 3, **options) -> torch.Tensor:
    return torch.ones(n, **options)


X = torch.randn(2, 3, 4)
LONG = torch.ones(2, 3, dtype=torch.int64)
BAD = {
    "integer x": ((LONG, p(), p(), p(), p(), 1), TypeError, "x must be float64.*int64"),
    "boolean x": ((LONG.bool(), p(), p(), p(), p(), 1), TypeError, "x must be.*bool"),
    "complex x": ((X + 0j, p(), p(), p(), p(), 1), TypeError, "x must be.*complex64"),
    "no tensor": (([1.0], p(), p(), p(), p(), 1), TypeError, "x must be a tensor, got list"),
    "a number": ((X, p(), 1.0, p(), p(), 1), TypeError, "a_r must be a 1-D tensor, got float"),
    "integers": ((X, p(), p(), p().int(), p(), 1), TypeError, "t_l must be a floating"),
    "2-D": ((X, p(), p(), p(), p()[:, None], 1), ValueError, r"a_l must be 1-D.*\(3, 1\)"),
    "0-D": ((X, p()[0], p(), p(), p(), 1), ValueError, r"t_r must be 1-D"),
    "length": ((X, p(), p(), p(), p(2), 1), ValueError, "a_l has 2 values but t_r has 3"),
    "device": ((X, p(), p(device="meta"), p(), p(), 1), ValueError, "a_r is on meta but x is on"),
    "channels": ((X, p(7), p(7), p(7), p(7), 1), ValueError, r"3 channels in dim=1 .*for 7"),
    "dim too large": ((X, p(), p(), p(), p(), 3), ValueError, r"dim=3 does not.*-3 <= dim < 3"),
    "dim too small": ((X, p(), p(), p(), p(), -4), ValueError, "dim=-4 does not exist"),
    "no dim": ((torch.tensor(1.0), p(), p(), p(), p(), 0), ValueError, "x is a scalar.*SReLU.1."),
    "no int": ((X, p(), p(), p(), p(), 1.0), TypeError, "dim must be an int, got float"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("backend", [None, "reference"])
def test_bad_input(name: str, backend: str | None) -> None:
    arguments, error, message = BAD[name]
    chosen = torch_srelu.use_backend(backend) if backend else contextlib.nullcontext()
    with chosen, pytest.raises(error, match=message):
        torch_srelu.srelu(*arguments)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_refused_with_what_to_do(layout, backend: str | None) -> None:
    act = SReLU(3, dim=-1)
    parts = [torch.randn(4, 3), torch.randn(2, 3)]
    x = torch.nested.nested_tensor(parts, layout=layout)
    chosen = torch_srelu.use_backend(backend) if backend else contextlib.nullcontext()
    with chosen, pytest.raises(TypeError, match=r"nested.*x\.values\(\).*x\.unbind\(\)"):
        act(x)
    if layout is torch.jagged:  # as it says
        y = torch.nested.nested_tensor_from_jagged(act(x.values()), x.offsets()).unbind()
    else:
        y = [act(part) for part in x.unbind()]
    for part, expected in zip(y, map(act, parts), strict=True):
        assert torch.equal(part, expected)


def test_bad_input_under_compile() -> None:
    compiled = torch.compile(torch_srelu.srelu, backend="eager")
    with pytest.raises(ValueError, match=r"3 channels in dim=1 .*for 7"):
        compiled(X, p(7), p(7), p(7), p(7))


def test_shared_parameters_take_any_rank() -> None:
    shared = [torch.tensor([v]) for v in (1.0, 0.5, -1.0, 0.1)]
    for shape in ((), (5,), (2, 3), (2, 3, 4, 5, 6, 7)):
        x = 3 * torch.randn(shape)
        y = torch_srelu.srelu(x, *shared)
        assert y.shape == x.shape
        flat = torch_srelu.srelu(x.reshape(-1, 1), *shared)
        assert torch.equal(y.reshape(-1, 1), flat)


def test_fx_keeps_it_as_one_call() -> None:
    traced = fx.symbolic_trace(SReLU(3))
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == [torch_srelu.srelu]
    assert torch.equal(traced(X), SReLU(3)(X))


def test_tensor_subclasses_are_asked_first() -> None:
    class Logged(torch.Tensor):
        calls: list = []  # noqa: RUF012

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    y = torch_srelu.srelu(X.as_subclass(Logged), p(), p(), p(), p())
    assert torch_srelu.srelu in Logged.calls
    assert isinstance(y, Logged)


class Wrapped(torch.Tensor):
    """A subclass whose values are in another tensor: it has no memory of its own."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(a.inner if isinstance(a, Wrapped) else a for a in args), **(kwargs or {}))


@pytest.mark.parametrize("place", range(5))
def test_tensors_without_memory_reach_no_kernel(place: int) -> None:
    tensors = [-torch.ones(2, 3), p(), p(), 0 * p(), 0.5 * p()]
    expected = torch_srelu.srelu(*tensors)
    tensors[place] = Wrapped(tensors[place])
    assert torch.equal(torch_srelu.srelu(*tensors), expected)


def test_a_view_of_the_opposite_sign() -> None:
    """Such a tensor holds the negative of what it says: kernels read memory."""
    x = torch._neg_view(torch.tensor([[1.0, 2.0, -3.0]]))
    assert torch.equal(SReLU(3)(x), SReLU(3)(x.clone()))
    leaf = torch.ones(1, 3, requires_grad=True)
    grad = torch._neg_view(torch.ones(1, 3))
    (got,) = torch.autograd.grad(SReLU(3)(leaf), leaf, grad)
    assert torch.equal(got, -torch.ones(1, 3))


def test_tensors_that_outlived_a_transform() -> None:
    """torch.func leaves wrappers behind, which look like tensors and have no memory."""
    kept = []

    def loss(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x.sum()

    x = torch.randn(2, 3)
    torch.func.grad(loss)(x)
    params = [torch.full((3,), v) for v in (0.5, 0.7, -0.5, 0.1)]
    expected = torch_srelu.srelu(x, *params)
    assert torch.equal(torch_srelu.srelu(kept[0], *params), expected)
    with torch.no_grad():
        assert torch.equal(torch_srelu.srelu(kept[0], *params), expected)


def test_scalars_and_odd_dims_are_refused_like_all_else() -> None:
    scalars = [torch.tensor(v) for v in (0.5, 0.7, -0.5, 0.1)]
    with pytest.raises(ValueError, match="t_r must be 1-D"):
        torch_srelu.srelu(torch.randn(5), *scalars)
    ones = [torch.ones(3) for _ in range(4)]
    with pytest.raises(TypeError, match="dim must be an int"):
        torch_srelu.srelu(torch.randn(2, 3), *ones, dim=torch.tensor(1))  # type: ignore[arg-type]


def _at_a_dual_level(unit: SReLU, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return unit(x)


def _with_a_tangent(unit: SReLU, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(unit(forward_ad.make_dual(x, torch.ones_like(x)))).primal


def _traced(unit: SReLU, x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing is deprecated, and warns about our checks
        return torch.jit.trace(unit, x.detach())(x)


ONLOOKERS = {
    "a dual level": _at_a_dual_level,
    "a tangent": _with_a_tangent,
    "torch.func": lambda unit, x: torch.func.vjp(unit, x)[0],
    "vmap": lambda unit, x: torch.vmap(unit)(x[None])[0],
    "jit": _traced,
    "export": lambda unit, x: torch.export.export(unit, (x.detach(),)).module()(x),
}


@pytest.mark.parametrize("needs_input", [True, False])
@pytest.mark.parametrize("way", ONLOOKERS)
def test_frozen_gradients_are_zeros_for_onlookers_too(way: str, needs_input: bool) -> None:
    """They get the operators of torch in place of ours, and the same gradients."""
    unit = SReLU(3, t_r=0.3, a_r=0.5)
    unit.frozen = True
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_(needs_input)
    y = ONLOOKERS[way](unit, x)
    wanted = [*unit.parameters(), *([x] if needs_input else [])]
    got = torch.autograd.grad(y.square().sum(), wanted)
    expected = torch.autograd.grad(unit(x).square().sum(), wanted)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert all(not zeros.any() for zeros in got[:4])
