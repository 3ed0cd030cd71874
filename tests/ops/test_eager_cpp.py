"""Calls without Python (native/eager.cpp): what they compute, and when they stand back.

The kernels are those of a stand-in for the driver; the units under test are otherwise as on a GPU.
"""

import threading
import warnings

import pytest
import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from torch_srelu import memory, recompute_outputs, srelu, use_backend
from torch_srelu.ops import cpp, triton_launch

if cpp.compiled is None or triton_launch._launch is None:
    pytest.skip(f"eager calls need Python: {cpp.why_not()}", allow_module_level=True)

from driver import BACKWARD, FINISH, FORWARD, Driver

pytestmark = pytest.mark.usefixtures("one_thread")
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
_sizes = iter(range(3, 10_000))  # a kind of call is never forgotten: every test has its own


class Kind:
    """Tensors of one kind, and the driver that was learnt for them."""

    def __init__(self, layout="contiguous", biased=False, alone=True, dim=1) -> None:
        torch.manual_seed(0)
        channels = 5
        x = torch.randn(2, channels, next(_sizes), 4, dtype=torch.float64)
        draw = torch.randn(4 + biased, channels, dtype=torch.float64)
        self.exact = [t.requires_grad_() for t in (x, *draw.unbind())]
        self.x = x.detach().float().to(memory_format=LAYOUTS[layout]).requires_grad_()
        self.params = [p.detach().float().clone().requires_grad_() for p in draw[:4]]
        self.bias = draw[4].detach().float().clone().requires_grad_() if biased else None
        self.dim, self.driver = dim, Driver(self.x, channels, dim, biased, alone)
        assert cpp.compiled.learn(self.x, *self.params, dim, self.bias, *self.driver.launches())

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [self.x, *self.params, *([] if self.bias is None else [self.bias])]

    def __call__(self, x=None, **options) -> torch.Tensor:
        x = self.x if x is None else x
        return srelu(x, *self.params, self.dim, bias=self.bias, **options)

    def expected(self, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, t_r, a_r, t_l, a_l, *bias = self.exact
        with use_backend("reference"):
            y = srelu(x, t_r, a_r, t_l, a_l, self.dim, bias=bias[0] if bias else None)
        return y, *torch.autograd.grad(y, self.exact, grad.double())


def close(found, expected) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [1, -3])
def test_values_and_gradients(layout, biased, alone, dim) -> None:
    kind = Kind(layout, biased, alone, dim)
    y = kind()
    grad = torch.randn_like(y)
    found = torch.autograd.grad(y, kind.tensors, grad)
    assert kind.driver.launched == [FORWARD, BACKWARD] + [FINISH] * (not alone)
    assert y.stride() == kind.x.stride()
    for f, e in zip((y, *found), kind.expected(grad), strict=True):
        close(f, e)


@pytest.mark.parametrize("needed", [[0], [0, 1], [3, 4], [1, 2, 3, 4, 5]])
def test_some_gradients(needed) -> None:
    kind = Kind(biased=True)
    y = kind()
    grad = torch.randn_like(y)
    found = torch.autograd.grad(y, [kind.tensors[i] for i in needed], grad)
    expected = kind.expected(grad)[1:]
    for f, i in zip(found, needed, strict=True):
        close(f, expected[i])


@pytest.mark.parametrize("which", range(6))
def test_tensors_that_need_no_gradient(which) -> None:
    kind = Kind(biased=True)
    kind.tensors[which].requires_grad_(False)
    y = kind()
    y.backward(grad := torch.randn_like(y))
    for n, (t, e) in enumerate(zip(kind.tensors, kind.expected(grad)[1:], strict=True)):
        if n == which:
            assert t.grad is None
        else:
            close(t.grad, e)


def test_nothing_needs_a_gradient() -> None:
    kind = Kind()
    with torch.no_grad():
        assert not kind().requires_grad
    for t in kind.tensors:
        t.requires_grad_(False)
    y = kind()
    assert not y.requires_grad
    assert kind.driver.launched == [FORWARD, FORWARD]
    close(y, kind.expected(torch.ones_like(y))[0].detach())


def test_gradients_of_gradients() -> None:
    kind = Kind(biased=True)

    def penalty(tensors, y):
        first = torch.autograd.grad(y.sin().sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), tensors)

    found = penalty(kind.tensors, kind())
    assert kind.driver.launched == [FORWARD, BACKWARD]  # the latter: the second time, from y back
    x, t_r, a_r, t_l, a_l, bias = kind.exact
    with use_backend("reference"):
        expected = penalty(kind.exact, srelu(x, t_r, a_r, t_l, a_l, kind.dim, bias=bias))
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f.double(), e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("grad", ["expanded", "other layout", "zero"])
def test_gradients_that_the_kernels_cannot_take(grad) -> None:
    kind = Kind()
    y = kind()
    given = {
        "expanded": torch.ones(()).expand_as(y),
        "other layout": torch.randn_like(y).to(memory_format=torch.channels_last),
        "zero": torch._efficientzerotensor(y.shape),
    }[grad]
    found = torch.autograd.grad(y, kind.tensors, given)
    assert kind.driver.launched == [FORWARD]
    for f, e in zip(found, kind.expected(given.clone())[1:], strict=True):
        close(f, e)


def test_a_batch_of_gradients() -> None:
    kind = Kind()
    grads = torch.randn(3, *kind.x.shape)
    found = torch.autograd.grad(kind(), kind.tensors, grads, is_grads_batched=True)
    for n, grad in enumerate(grads):
        for f, e in zip(found, kind.expected(grad)[1:], strict=True):
            close(f[n], e)


def test_memory_that_is_not_aligned() -> None:
    kind = Kind()
    moved = torch.empty(kind.x.numel() + 1)[1:].view_as(kind.x).copy_(kind.x.detach())
    y = kind(moved.requires_grad_())
    assert not kind.driver.launched
    close(y, kind.expected(torch.ones_like(y))[0])
    grad = torch.empty(kind.x.numel() + 1)[1:].view_as(kind.x).normal_()
    found = torch.autograd.grad(kind(), kind.tensors, grad)
    assert kind.driver.launched == [FORWARD]
    for f, e in zip(found, kind.expected(grad)[1:], strict=True):
        close(f, e)


@pytest.mark.parametrize("which", range(6))
def test_what_backward_needs_must_not_be_modified(which) -> None:
    kind = Kind(biased=True)
    y = kind()
    with torch.no_grad():
        kind.tensors[which].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_parameters_that_changed_their_dtype_are_left_to_python() -> None:
    kind = Kind()
    y = kind()
    for p in kind.params:
        p.data = p.data.double()
    y.backward(grad := torch.randn_like(y))  # they hold the same numbers
    assert kind.driver.launched == [FORWARD]
    for t, e in zip(kind.tensors, kind.expected(grad)[1:], strict=True):
        close(t.grad, e)


def test_a_thread_without_a_context_gets_one() -> None:
    """The driver refuses its first launch; what torch does to fill a tensor would help it."""
    kind = Kind()
    refused = []

    def launch(function, *rest, real=kind.driver._launch) -> int:
        if len(refused) < 2 and function not in refused:
            refused.append(function)
            return 201
        return real(function, *rest)

    kind.driver.on_launch = launch
    y = kind()
    grad = torch.randn_like(y)
    found = torch.autograd.grad(y, kind.tensors, grad)
    assert refused == kind.driver.launched == [FORWARD, BACKWARD]
    for f, e in zip((y, *found), kind.expected(grad), strict=True):
        close(f, e)


def test_tangents_of_gradients() -> None:
    """Forward mode behind the unit: its own tensors have no tangents, the gradient has."""
    kind, weight = Kind(), torch.randn(())
    level = torch.autograd.forward_ad

    def tangent(x, y, weight) -> torch.Tensor:
        dual = level.make_dual(weight, torch.ones_like(weight))
        (grad,) = torch.autograd.grad((y() * dual).square().sum(), x)
        found = level.unpack_dual(grad).tangent
        assert found is not None
        return found

    with level.dual_level():
        inside = tangent(kind.x, kind, weight)
    y = kind()
    with level.dual_level():
        outside = tangent(kind.x, lambda: y, weight)
    x, *params = kind.exact
    with use_backend("reference"), level.dual_level():
        expected = tangent(x, lambda: srelu(x, *params, kind.dim), weight.double())
    close(inside, expected)
    close(outside, expected)


def test_backward_under_fake_tensors() -> None:
    kind = Kind()
    y = kind()
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = torch.autograd.grad(y, kind.tensors, torch.ones(kind.x.shape))
    assert kind.driver.launched == [FORWARD]
    assert all(isinstance(f, FakeTensor) for f in found)


def test_backward_twice_and_freed() -> None:
    kind = Kind()
    y = kind()
    grad = torch.randn_like(y)
    first = torch.autograd.grad(y, kind.tensors, grad, retain_graph=True)
    second = torch.autograd.grad(y, kind.tensors, grad)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, kind.tensors, grad)


@pytest.mark.parametrize("biased", [False, True])
def test_recomputed_outputs(biased, monkeypatch) -> None:
    kind = Kind(biased=biased)
    weight = torch.randn(5, 5, 1, 1, requires_grad=True)
    grad = torch.randn_like(kind.x)

    def gradients():
        y = torch.nn.functional.conv2d(kind(), weight)
        return torch.autograd.grad(y, [*kind.tensors, weight], grad)

    expected = gradients()
    before = len(kind.driver.launched)
    noted = []
    output = memory._Output
    monkeypatch.setattr(memory, "_Output", lambda *a: noted.append(a) or output(*a))
    with recompute_outputs():
        found = gradients()
    assert len(noted) == 1
    assert kind.driver.launched[before:] == [FORWARD, FORWARD, BACKWARD]
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=1e-5, atol=1e-5)


def test_hooks() -> None:
    kind = Kind()
    grad = torch.randn_like(kind.x)
    packed = []
    with saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = kind()
    assert [t.shape for t in packed] == [t.shape for t in kind.tensors]
    for f, e in zip(
        torch.autograd.grad(y, kind.tensors, grad), kind.expected(grad)[1:], strict=True
    ):
        close(f, e)


def test_checkpoints() -> None:
    kind = Kind()
    grad = torch.randn_like(kind.x)
    found = torch.autograd.grad(checkpoint(kind, kind.x, use_reentrant=False), kind.tensors, grad)
    for f, e in zip(found, kind.expected(grad)[1:], strict=True):
        close(f, e)


def test_threads() -> None:
    kind = Kind()
    grad, results = torch.randn_like(kind.x), {}

    def work(n: int) -> None:
        for _ in range(20):
            results[n] = torch.autograd.grad(kind(), kind.tensors, grad)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 4
    for found in results.values():
        for f, e in zip(found, kind.expected(grad)[1:], strict=True):
            close(f, e)


class Subclass(torch.Tensor):
    pass


class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def dual(kind):
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(kind.x, torch.ones_like(kind.x))
        return torch.autograd.forward_ad.unpack_dual(kind(x)).primal


def in_mode(kind):
    with Mode():
        return kind()


def forced(kind):
    with use_backend("reference"):
        return kind()


def inferred(kind):
    with torch.inference_mode():
        return kind()


def traced(kind):
    kind.params = [p.detach() for p in kind.params]
    with warnings.catch_warnings():  # of sizes that the trace makes constants
        warnings.simplefilter("ignore")
        return torch.jit.trace(lambda x: kind(x), kind.x, check_trace=False)(kind.x)


LEFT_TO_PYTHON = {
    "a subclass": lambda kind: kind(kind.x.as_subclass(Subclass)).as_subclass(torch.Tensor),
    "vmap": lambda kind: torch.func.vmap(lambda x: kind(x), in_dims=0)(kind.x[None])[0],
    "grad": lambda kind: torch.func.vjp(lambda x: kind(x), kind.x)[0],
    "forward mode": dual,
    "a dispatch mode": in_mode,
    "another backend": forced,
    "inference_mode": inferred,
    "frozen": lambda kind: kind(frozen=True),
    "compiled": lambda kind: torch.compile(lambda x: kind(x), fullgraph=True, backend="eager")(
        kind.x
    ),
    "a trace": traced,
}


@pytest.mark.parametrize("how", LEFT_TO_PYTHON)
def test_what_is_left_to_python(how) -> None:
    kind = Kind()
    y = LEFT_TO_PYTHON[how](kind)
    assert not kind.driver.launched
    close(y.detach().clone(), kind.expected(torch.ones_like(kind.x))[0].detach())


def test_other_kinds_are_left_to_python() -> None:
    kind = Kind()
    for x in (kind.x[:, :, :2], kind.x.mT, kind.x.double(), kind.x.half(), kind.x[:1]):
        kind(x)
    srelu(kind.x, *[p.half() for p in kind.params])
    srelu(kind.x, *kind.params, bias=torch.zeros(5))
    assert not kind.driver.launched


def test_bad_arguments_raise_what_they_always_raise() -> None:
    kind = Kind()
    with pytest.raises(TypeError, match="dim must be"):
        srelu(kind.x, *kind.params, 1.0)
    with pytest.raises(TypeError, match="x must be a tensor"):
        srelu([1.0], *kind.params)
    with pytest.raises(ValueError, match="dim"):
        srelu(kind.x, *kind.params, 2**70)
    assert cpp.compiled.srelu(kind.x) is None


def test_compiled_autograd() -> None:
    kind = Kind()
    grad = torch.randn_like(kind.x)
    y = kind()
    compiler = torch.compile(backend="eager")
    with torch._dynamo.compiled_autograd._enable(compiler):
        y.backward(grad)
    for t, e in zip(kind.tensors, kind.expected(grad)[1:], strict=True):
        close(t.grad, e)
