"""The cache of eager calls: which calls use it, and which must not."""

import itertools
from collections.abc import Iterator

import pytest
import torch

import torch_srelu
from checks import DEVICE, device_of, using
from torch_srelu import _torch_compat
from torch_srelu.ops import call_cache
from torch_srelu.ops.arguments import Parameters
from torch_srelu.ops.triton.triton_launch import Launch


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "_calls", {})


@pytest.fixture(params=["triton", "cpu"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where tensors are to be; one backend computes there."""
    with using(request.param):
        yield device_of(request.param)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every backward pass of a prepared call, whether it took the gradient."""
    taken, takes = [], call_cache.PreparedCall.takes

    def noted(self: call_cache.PreparedCall, *given: torch.Tensor) -> bool:
        taken.append(takes(self, *given))
        return taken[-1]

    monkeypatch.setattr(call_cache.PreparedCall, "takes", noted)
    return taken


def tensors(shape=(4, 3), device: str = DEVICE) -> list[torch.Tensor]:
    torch.manual_seed(0)
    values = (0.5, 0.7, -0.5, 0.1)
    of_channels = (torch.full((shape[1],), v, device=device) for v in values)
    return [torch.randn(shape, device=device), *of_channels]


def gradients(
    inputs: list[torch.Tensor],
    seed: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """The output and the gradients of all inputs, the bias last if there is one."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    own = None if bias is None else bias.detach().requires_grad_()
    y = torch_srelu.srelu(*leaves, bias=own)
    leaves += [] if own is None else [own]
    return [y, *torch.autograd.grad(y, leaves, torch.ones_like(y) if seed is None else seed)]


def signatures() -> int:
    """How many signatures are cached."""
    return sum(map(len, call_cache._calls.values()))


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 256), (40, 7)])
def test_calls_of_one_signature_share_an_entry_and_give_the_same_bits(
    shape, device: str, prepared: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = gradients(tensors(shape, device))
    assert signatures() == 1
    again = gradients(tensors(shape, device))
    assert signatures() == 1
    assert prepared == [True] * 2
    with torch.no_grad():
        without_grad = torch_srelu.srelu(*tensors(shape, device))
    monkeypatch.setattr(_torch_compat, "_TensorGuards", None)
    call_cache._calls.clear()
    uncached = gradients(tensors(shape, device))
    assert len(prepared) == 2
    assert signatures() == 0
    for got in (first, again):
        assert all(map(torch.equal, got, uncached))
    assert torch.equal(without_grad, uncached[0])


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 256), (40, 7)])
def test_a_bias_is_cached_with_the_same_bits(
    shape, prepared: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, bias = tensors(shape), torch.linspace(-1, 1, shape[1], device=DEVICE)
    with using("triton"):
        plain = gradients(inputs)
        first, again = gradients(inputs, bias=bias), gradients(inputs, bias=bias)
        assert signatures() == 2
        assert prepared == [True] * 3
        with torch.no_grad():
            without_grad = torch_srelu.srelu(*inputs, bias=bias)
        monkeypatch.setattr(_torch_compat, "_TensorGuards", None)
        call_cache._calls.clear()
        uncached = gradients(inputs, bias=bias)
        half = gradients(inputs, bias=bias.bfloat16())
    assert len(prepared) == 3
    assert len(first) == len(plain) + 1
    assert not torch.equal(first[0], plain[0])
    for got in (first, again):
        assert all(map(torch.equal, got, uncached))
    assert torch.equal(without_grad, uncached[0])
    assert half[-1].dtype == torch.bfloat16


def test_other_shapes_strides_dtypes_and_dims_are_other_signatures(device: str) -> None:
    square = tensors((3, 3), device)
    for inputs in (
        square,
        [square[0].t(), *square[1:]],
        [square[0].double(), *square[1:]],
        [square[0], square[1].double(), *square[2:]],
        tensors((2, 3, 5), device),
    ):
        torch_srelu.srelu(*inputs)
    torch_srelu.srelu(*square, dim=0)
    assert signatures() == 6


def test_a_cached_call_of_another_backend_is_not_used() -> None:
    with using("triton"):
        expected = gradients(tensors())
    with using("reference"):
        x, *params = tensors()
        assert call_cache.lookup(x, Parameters(*params), 1, None) is None
        got = gradients(tensors())
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_arguments_that_do_not_fit_are_refused_after_a_cached_call(device: str) -> None:
    x, t_r, a_r, t_l, a_l = tensors(device=device)
    torch_srelu.srelu(x, t_r, a_r, t_l, a_l)
    for wrong, error in (
        ((x, t_r, a_r[:2], t_l, a_l), ValueError),
        ((x[:, :2], t_r, a_r, t_l, a_l), ValueError),
        ((x.int(), t_r, a_r, t_l, a_l), TypeError),
        ((x, t_r, 0.7, t_l, a_l), TypeError),
        ((x, t_r, a_r, t_l, a_l, 1.0), TypeError),
        ((x, t_r, a_r, t_l, a_l, [1]), TypeError),
    ):
        with pytest.raises(error):
            torch_srelu.srelu(*wrong)  # type: ignore[arg-type]


def test_gradients_in_another_layout_or_sign(device: str) -> None:
    inputs = tensors((3, 3), device)
    seed = torch.randn(3, 3, device=device)
    expected = gradients(inputs, seed)
    other_layout = gradients(inputs, seed.t().contiguous().t())
    other_sign = gradients(inputs, torch._neg_view(-seed))
    assert all(map(torch.equal, other_layout, expected))
    assert all(map(torch.equal, other_sign, expected))


@pytest.mark.parametrize("backend", ["reference", "cpu", "triton"])
@pytest.mark.parametrize("place", range(5))
def test_tensors_replaced_by_others_of_another_size(backend: str, place: int) -> None:
    """By ``.data``: an error, before a kernel reads out of bounds."""
    leaves = [t.to(device_of(backend)).requires_grad_() for t in tensors()]
    with using(backend):
        y = torch_srelu.srelu(*leaves)
        shape = (900, 3) if place == 0 else (900,)
        leaves[place].data = torch.zeros(shape, device=y.device)
        with pytest.raises(ValueError, match="expected that of x" if place == 0 else "do not fit"):
            torch.autograd.grad(y, leaves, torch.ones_like(y))


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("how", ["gaps", "sign"])
def test_tensors_replaced_by_others_of_their_size(how: str, place: int, device: str) -> None:
    def replaced(value: torch.Tensor) -> torch.Tensor:
        if how == "sign":
            return torch._neg_view(-value)
        wide = torch.full((*value.shape, 2), 9.0, device=device)
        wide[..., 0] = value
        return wide[..., 0]

    expected = gradients(tensors(device=device))[1:]
    leaves = [t.requires_grad_() for t in tensors(device=device)]
    y = torch_srelu.srelu(*leaves)
    leaves[place].data = replaced(leaves[place].detach())
    got = torch.autograd.grad(y, leaves, torch.ones_like(y))
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b)


def test_parameters_of_another_dtype_are_another_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code is looked up by dtypes: those of the tensors, not of the prepared call."""
    keys = []
    launch = Launch.__call__

    def noted(self: Launch, key: tuple, *given: torch.Tensor | None, out=()) -> None:
        keys.append((key, {t.dtype for t in given if t is not None}))
        launch(self, key, *given, out=out)

    monkeypatch.setattr(Launch, "__call__", noted)
    unit = torch_srelu.SReLU(3, device=DEVICE, dtype=torch.bfloat16)
    with using("triton"):
        y = unit(tensors()[0].requires_grad_())
        unit.float()
        y.backward(torch.ones_like(y))
    for (_, *dtypes), given in keys:
        assert set(filter(None, dtypes)) <= given
    assert torch.bfloat16 not in keys[-1][0]


@pytest.mark.parametrize("backend", ["triton", "cpu"])
def test_lazily_negated_parameters(backend: str) -> None:
    x, t_r, *rest = (t.to(device_of(backend)) for t in tensors())
    with using(backend):
        expected = torch_srelu.srelu(x, t_r, *rest)
        got = torch_srelu.srelu(x, torch._neg_view(-t_r), *rest)
    assert torch.equal(got, expected)


def test_partial_gradients_and_frozen_units_do_not_use_the_cache(device: str) -> None:
    x, *params = tensors(device=device)
    full = gradients([x, *params])
    t_r = params[0].clone().requires_grad_()
    (got,) = torch.autograd.grad(torch_srelu.srelu(x, t_r, *params[1:]).sum(), t_r)
    leaves = [t.clone().requires_grad_() for t in (x, *params)]
    frozen = torch.autograd.grad(torch_srelu.srelu(*leaves, frozen=True).sum(), leaves)
    assert torch.equal(got, full[2])
    assert torch.equal(frozen[0], full[1])
    assert all(not g.any() for g in frozen[1:])


def test_the_cache_is_limited(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "MAX_SHAPES", 2)
    monkeypatch.setattr(call_cache, "MAX_SIGNATURES", 2)
    x, *params = tensors((3, 3), device)
    for rows in range(1, 6):
        torch_srelu.srelu(*tensors((rows, 3), device))
    for needs in itertools.product((False, True), repeat=4):  # each is a signature
        torch_srelu.srelu(
            x, *(p.clone().requires_grad_(n) for p, n in zip(params, needs, strict=True))
        )
    assert len(call_cache._calls) <= 2
    assert max(map(len, call_cache._calls.values())) <= 2


def test_one_tensor_for_two_parameters_is_not_cached(device: str) -> None:
    x, t_r, a_r, t_l, _ = tensors(device=device)
    expected = torch_srelu.srelu(x, t_r, a_r, t_l, a_r.clone())
    for _ in range(3):
        assert torch.equal(torch_srelu.srelu(x, t_r, a_r, t_l, a_r), expected)
    assert signatures() == 1


@pytest.mark.parametrize("backend", ["triton", "cpu", "reference"])
def test_tensors_without_values(backend: str) -> None:
    x, ones = torch.randn(4, 3, device=device_of(backend)), ones_on(backend)
    meta = [t.to("meta") for t in (x, *ones)]
    with using(backend):
        torch_srelu.srelu(x, *ones)
        assert torch_srelu.srelu(*meta).is_meta
        with pytest.raises(ValueError, match="t_r is on meta but x is on"):
            torch_srelu.srelu(x, meta[1], *ones[1:])


def ones_on(backend: str) -> list[torch.Tensor]:
    return [torch.ones(3, device=device_of(backend)) for _ in range(4)]


@pytest.mark.parametrize("backend", ["triton", "cpu", "reference"])
def test_zeros_that_have_no_memory(backend: str) -> None:
    """torch makes such tensors for gradients that are zero."""
    device = device_of(backend)
    zeros = torch._efficientzerotensor((4, 3), device=device)
    x = torch.randn(4, 3, device=device, requires_grad=True)
    params = [p.requires_grad_() for p in ones_on(backend)]
    with using(backend):
        expected = torch_srelu.srelu(torch.zeros(4, 3, device=device), *params)
        assert torch.equal(torch_srelu.srelu(zeros, *params), expected)
        grads = torch.autograd.grad(torch_srelu.srelu(x, *params), [x, *params], zeros)
    assert all(not g.any() for g in grads)


def test_other_layouts_are_refused_by_name() -> None:
    for backend in ("triton", "cpu"):
        x = torch.eye(3, device=device_of(backend)).to_sparse()
        with using(backend), pytest.raises(TypeError, match=r"call x\.to_dense"):
            torch_srelu.srelu(x, *ones_on(backend))


@pytest.mark.parametrize("backend", ["reference", "cpu", "triton"])
def test_tangents_of_gradients(backend: str) -> None:
    """Forward mode after the unit: its own tensors have no tangents, the gradient has."""
    level = torch.autograd.forward_ad
    x, *params = (t.to(device_of(backend)).double().requires_grad_() for t in tensors())
    weight = torch.ones((), dtype=x.dtype, device=x.device)
    with using(backend):
        y = torch_srelu.srelu(x, *params)
        with level.dual_level():
            dual = level.make_dual(weight, torch.ones_like(weight))
            grads = torch.autograd.grad((y * dual).sum(), [x, *params])
            tangents = [level.unpack_dual(g).tangent for g in grads]
    # The gradients are those of y, times the weight: so are their tangents, times its tangent.
    for gradient, tangent in zip(grads, tangents, strict=True):
        torch.testing.assert_close(tangent, level.unpack_dual(gradient).primal)
