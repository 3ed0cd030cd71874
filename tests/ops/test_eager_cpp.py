"""Calls without Python (native/eager.cpp): what they compute."""

import threading

import pytest
import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from torch_srelu import SReLU, srelu, use_backend
from torch_srelu.ops import autograd as eager
from torch_srelu.ops import cpp, layout
from torch_srelu.ops.triton import triton_backend as triton
from torch_srelu.ops.triton import triton_launch

if cpp.compiled is None or triton_launch._launch is None:
    pytest.skip(f"eager calls need Python: {cpp.why_not()}", allow_module_level=True)

from driver import BACKWARD, FINISH, FORWARD, Driver
from learnt import LAYOUTS, Kind, close

pytestmark = pytest.mark.usefixtures("one_thread")


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


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("frozen", [False, True])
def test_calls_without_gradients(mode, frozen) -> None:
    kind = Kind("channels_last", biased=True)
    with mode():
        y = kind(frozen=frozen)
    assert kind.driver.launched == [FORWARD]
    assert y.is_inference() == (mode is torch.inference_mode)
    assert y.stride() == kind.x.stride()
    close(y, kind.expected(torch.ones_like(kind.x))[0].detach())
    with mode(), use_backend("reference"):
        expected = kind(y).double()
    with mode():
        close(kind(y), expected)  # of an inference tensor, if y is one


@pytest.mark.parametrize("alone", [True, False])
def test_backward_is_learnt_later(alone) -> None:
    kind = Kind(alone=alone, trains=False)
    with torch.no_grad():
        kind()
    grad = torch.randn_like(kind.x)
    for launched in ([FORWARD], [FORWARD, FORWARD, BACKWARD] + [FINISH] * (not alone)):
        found = torch.autograd.grad(kind(), kind.tensors, grad)
        assert kind.driver.launched == launched  # at first Python has computed both
        for f, e in zip(found, kind.expected(grad)[1:], strict=True):
            close(f, e)
        kind.learn(trains=True)


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("grad", ["expanded", "mean", "other layout", "zero"])
def test_gradients_that_are_not_laid_out_like_the_input(grad, layout) -> None:
    kind = Kind(layout)
    y = kind()
    other = torch.channels_last if layout == "contiguous" else torch.contiguous_format
    given = {
        "expanded": torch.ones(()).expand_as(y),
        "mean": torch.randn(y.shape[:2])[..., None, None].expand_as(y) / 8,
        "other layout": torch.randn_like(y).to(memory_format=other),
        "zero": torch._efficientzerotensor(y.shape),
    }[grad]
    found = torch.autograd.grad(y, kind.tensors, given)
    # They are copied, unless they have no memory.
    assert kind.driver.launched == ([FORWARD] if grad == "zero" else [FORWARD, BACKWARD])
    for f, e in zip(found, kind.expected(given.clone())[1:], strict=True):
        close(f, e)


class NoGradient(torch.autograd.Function):
    """A layer that has no gradient for its input."""

    @staticmethod
    def forward(ctx, y):
        return y * 1

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        return None


def test_a_layer_behind_without_a_gradient() -> None:
    kind = Kind(biased=True)
    found = torch.autograd.grad(NoGradient.apply(kind()).sum(), kind.tensors)
    assert kind.driver.launched == [FORWARD, BACKWARD]
    assert not any(f.any() for f in found)


def test_the_name_of_the_node() -> None:
    assert Kind()().grad_fn.name() == "SReLUBackward"


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


def test_compiled_autograd() -> None:
    kind = Kind()
    grad = torch.randn_like(kind.x)
    y = kind()
    compiler = torch.compile(backend="eager")
    with torch._dynamo.compiled_autograd._enable(compiler):
        y.backward(grad)
    for t, e in zip(kind.tensors, kind.expected(grad)[1:], strict=True):
        close(t.grad, e)


def test_an_evaluation_teaches_no_backward_pass() -> None:
    """There may be launches for it, of calls whose results are converted: to bfloat16, here."""
    x = torch.randn(2, 5, 17, 19).bfloat16()
    params = [torch.randn(5).bfloat16().requires_grad_() for _ in range(4)]
    view = layout.view(x, 5, 1)
    assert view is not None
    call, driver = triton.Call(x, params, view), Driver(x, 5)
    for launch, function in ((call._forward, FORWARD), (call._backward.first, BACKWARD)):
        launch.plans[call._key] = driver.plan(function)
    with torch.no_grad():
        eager._teach(call, (x, *params), 1, backward=False)
    assert call.taught == 1
    assert cpp.compiled.srelu(x, *params, 1, None) is None  # for gradients


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_python_teaches() -> None:
    unit = SReLU(7, device="cuda")
    x = torch.randn(3, 7, 11, 13, device="cuda")  # of a size that no other test has
    call = (x, *unit.parameters(), 1, None)
    with torch.no_grad():
        y = unit(x)
        assert torch.equal(cpp.compiled.srelu(*call), y)
    assert cpp.compiled.srelu(*call) is None  # for gradients, backward must have been seen
    x.requires_grad_()
    unit(x).sum().backward()
    assert torch.equal(cpp.compiled.srelu(*call), y)
