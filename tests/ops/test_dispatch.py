"""Which implementation a call gets: the reference, the custom operator or the autograd.Function."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import torch_srelu
from checks import random_inputs
from torch_srelu import SReLU
from torch_srelu.ops import autograd, custom_ops, reference
from torch_srelu.ops.tracing import tracing


class Wrapped(torch.Tensor):
    """A subclass whose values are in another tensor: it has no memory of its own."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        wrapper.inner = inner
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(a.inner if isinstance(a, Wrapped) else a for a in args), **(kwargs or {}))


def at_a_dual_level(function, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return function(x)


def with_a_tangent(function, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))).primal


def traced(function, x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing is deprecated, and warns about our checks
        return torch.jit.trace(function, x.detach(), check_trace=False)(x)


def in_a_mode(function, x: torch.Tensor) -> torch.Tensor:
    with FlopCounterMode(display=False):
        return function(x)


def fake(function, x: torch.Tensor) -> torch.Tensor:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return function(mode.from_tensor(x))


PLAIN_OPERATORS = {
    "a dual level": at_a_dual_level,
    "a tangent": with_a_tangent,
    "torch.func": lambda function, x: torch.func.vjp(function, x)[0],
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,))[0],
    "vmap": lambda function, x: torch.vmap(function)(x[None])[0],
    "jit": traced,
}
CUSTOM_OPERATOR = {
    "a dispatch mode": in_a_mode,
    "fake tensors": fake,
    "before dispatch": lambda function, x: make_fx(function, pre_dispatch=True)(x)(x),
}
ROUTES = [pytest.param(lambda function, x: function(x), None, id="eager")]
ROUTES += [pytest.param(run, "plain operators", id=name) for name, run in PLAIN_OPERATORS.items()]
ROUTES += [pytest.param(run, "custom operator", id=name) for name, run in CUSTOM_OPERATOR.items()]


@pytest.mark.parametrize(("run", "expected"), ROUTES)
def test_tracing_names_what_is_active(run, expected: str | None) -> None:
    seen = []

    def function(x):
        seen.append(tracing())
        return x + 0

    run(function, torch.randn(2, 3))
    assert set(seen) == {expected}
    assert tracing() is None


def test_tracing_inside_compiled_and_exported_code() -> None:
    def function(x):
        return x + {None: 0, "plain operators": 1, "custom operator": 2}[tracing()]

    x = torch.zeros(3)
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), x + 2)
    jvp = torch.compile(
        lambda x: torch.func.jvp(function, (x,), (x,))[0], backend="eager", fullgraph=True
    )
    assert torch.equal(jvp(x), x + 1)
    module = torch.nn.Module()
    module.forward = function
    assert torch.equal(torch.export.export(module, (x,)).module()(x), x + 1)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(("run", "expected"), ROUTES)
def test_dispatches_to_one_of_three(run, expected: str | None, grad: bool, monkeypatch) -> None:
    """The reference, the custom operator, or the autograd.Function."""
    called = []
    for route in (reference, custom_ops, autograd):

        def noted(*args, route=route, original=route.srelu):
            called.append(route)
            return original(*args)

        monkeypatch.setattr(route, "srelu", noted)
    with torch.set_grad_enabled(grad):
        run(SReLU(3), torch.randn(2, 3))
    route = {None: autograd, "plain operators": reference, "custom operator": custom_ops}[expected]
    assert set(called) == {route}


def test_tensors_without_kernels_get_the_custom_operator(monkeypatch) -> None:
    called = []
    monkeypatch.setattr(custom_ops, "srelu", lambda x, *rest: called.append(x) or x)
    for x in (Wrapped(torch.randn(2, 3)), torch.empty(2, 3, device="meta")):
        SReLU(3, device=x.device)(x)
    assert len(called) == 2


def test_compiled_code_calls_the_custom_operator() -> None:
    graphs = []
    backend = lambda graph, _: graphs.append(graph) or graph.forward  # noqa: E731
    unit, x = SReLU(3), torch.randn(2, 3)
    assert torch.equal(torch.compile(unit, backend=backend, fullgraph=True)(x), unit(x))
    assert "torch_srelu.srelu" in graphs[0].code


@pytest.mark.parametrize("needs_input", [True, False])
@pytest.mark.parametrize("name", [*PLAIN_OPERATORS, "export"])
def test_frozen_gradients_of_plain_operators_are_zeros(name: str, needs_input: bool) -> None:
    unit = SReLU(3, t_r=0.3, a_r=0.5)
    unit.frozen = True
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_(needs_input)
    if name == "export":
        y = torch.export.export(unit, (x.detach(),)).module()(x)
    else:
        y = PLAIN_OPERATORS[name](unit, x)
    wanted = [*unit.parameters(), *([x] if needs_input else [])]
    got = torch.autograd.grad(y.square().sum(), wanted)
    expected = torch.autograd.grad(unit(x).square().sum(), wanted)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert all(not zeros.any() for zeros in got[:4])


@pytest.mark.parametrize("place", range(5))
def test_tensors_without_memory_reach_no_kernel(place: int) -> None:
    tensors = [
        -torch.ones(2, 3),
        torch.ones(3),
        torch.ones(3),
        0 * torch.ones(3),
        0.5 * torch.ones(3),
    ]
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
    """Wrappers of torch.func, which have no memory."""
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


def test_functional_transforms() -> None:
    x, params = random_inputs(torch.float64, requires_grad=False)

    def loss(*tensors):
        return torch_srelu.srelu(*tensors).square().sum()

    leaves = [t.clone().requires_grad_() for t in (x, *params)]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    got = torch.func.grad(loss, argnums=tuple(range(5)))(x, *params)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
    row = x[0, :, 0, :1].T.contiguous()
    jacobian = torch.func.jacrev(lambda r: torch_srelu.srelu(r, *params))(row)
    torch.testing.assert_close(
        jacobian, torch.func.jacfwd(lambda r: torch_srelu.srelu(r, *params))(row)
    )


def test_jacobian_with_batched_gradients() -> None:
    """torch.autograd's own vmap, which is not torch.func's."""
    x, params = random_inputs(torch.float64, requires_grad=False)
    row = x[:2, :, 0, 0].contiguous()

    def function(r):
        return torch_srelu.srelu(r, *params)

    loop = torch.autograd.functional.jacobian(function, row)
    torch.testing.assert_close(
        torch.autograd.functional.jacobian(function, row, vectorize=True), loop
    )


def test_fake_tensors_and_dispatch_modes_see_an_operator() -> None:
    with FakeTensorMode():
        fake = SReLU(3)(torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last))
    assert fake.shape == (2, 3, 4, 4)
    assert fake.stride() == (48, 1, 12, 3)
    with FlopCounterMode(display=False):
        SReLU(3)(torch.randn(2, 3)).sum().backward()
    meta = SReLU(3, device="meta")(torch.empty(2, 3, device="meta"))
    assert meta.device.type == "meta"
