"""Recomputed outputs of calls without Python (native/eager.cpp)."""

import gc
import threading
import weakref

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import conv2d, linear

from torch_srelu import SReLU, memory, recompute_outputs, srelu
from torch_srelu.ops import cpp
from torch_srelu.ops.triton import triton_launch

if cpp.compiled is None or triton_launch._launch is None:
    pytest.skip(f"eager calls need Python: {cpp.why_not()}", allow_module_level=True)

from driver import BACKWARD, FORWARD
from learnt import Kind

pytestmark = pytest.mark.usefixtures("one_thread")


def weight() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(5, 5, 1, 1, requires_grad=True)


@pytest.mark.parametrize("biased", [False, True])
def test_gradients_do_not_change(biased) -> None:
    kind, w = Kind(biased=biased), weight()
    grad = torch.randn_like(kind.x)

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(conv2d(kind(kind.x * 1), w), [*kind.tensors, w], grad)

    expected = gradients()
    assert kind.driver.launched == [FORWARD, BACKWARD]
    with recompute_outputs():
        found = gradients()
    assert kind.driver.launched[2:] == [FORWARD, FORWARD, BACKWARD]
    assert all(map(torch.equal, found, expected))


def test_units_in_a_row() -> None:
    """The output between them is not kept either: it is the input of the second."""
    kind, w = Kind(), weight()
    grad = torch.randn_like(kind.x)

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(conv2d(kind(kind(kind.x * 1)), w), [*kind.tensors, w], grad)

    expected = gradients()
    del kind.driver.launched[:]
    with recompute_outputs():
        found = gradients()
    # The convolution has both computed again, the second unit the first.
    assert kind.driver.launched == [FORWARD] * 5 + [BACKWARD] * 2
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("view", [lambda y: y.flatten(1), lambda y: y[:, :, :2].flatten(1)])
def test_a_view_of_an_output_is_not_kept_either(view) -> None:
    kind = Kind()
    grad = torch.randn(2, 3)
    torch.manual_seed(1)
    w = torch.randn(3, view(kind.x).shape[1], requires_grad=True)
    expected = torch.autograd.grad(linear(view(kind()), w), [*kind.tensors, w], grad)
    with recompute_outputs():
        y = kind()
        z = linear(view(y), w)
    output = weakref.ref(y.untyped_storage())
    del y
    assert output() is None
    assert all(map(torch.equal, torch.autograd.grad(z, [*kind.tensors, w], grad), expected))


def test_several_layers_keep_an_output() -> None:
    kind, w = Kind(biased=True), weight()

    def gradients() -> tuple[torch.Tensor, ...]:
        y = kind()
        z = conv2d(y, w) * conv2d(y, w.square())
        return torch.autograd.grad(z.sum(), [*kind.tensors, w])

    expected = gradients()
    with recompute_outputs():
        assert all(map(torch.equal, gradients(), expected))


@pytest.mark.parametrize("which", range(7))
def test_memory_given_anew_before_an_output_is_used(which) -> None:
    """By ``.data``, unseen by autograd: the layer behind computes with what it was given."""
    kind, w = Kind(biased=True), weight()
    tensors = [kind.x.detach().clone().requires_grad_(), *kind.tensors[1:]]
    with recompute_outputs():
        y = kind(tensors[0])
        given = [*tensors, y][which]
        given.data = torch.zeros_like(given)
        z = conv2d(y, w)
    (expected,) = torch.autograd.grad(conv2d(y.detach(), w).square().sum(), w)
    assert torch.equal(torch.autograd.grad(z.square().sum(), w)[0], expected)


def test_a_view_given_other_memory() -> None:
    kind = Kind()
    with recompute_outputs():
        view = kind().flatten(1)
        view.data = torch.zeros_like(view)
        w = torch.ones(3, view.shape[1], requires_grad=True)
        z = linear(view, w)
    assert not torch.autograd.grad(z.sum(), w)[0].any()


def test_an_output_used_while_another_thread_runs_its_backward() -> None:
    """Which is about to free what the output would be computed of: it is kept."""
    kind, w = Kind(), weight()
    (expected,) = torch.autograd.grad(conv2d(kind(), w).square().sum(), w)
    running, used, launch = threading.Event(), threading.Event(), kind.driver.on_launch

    def waiting(function, *rest) -> int:
        if function == BACKWARD:
            running.set()
            assert used.wait(30)
        return launch(function, *rest)

    with recompute_outputs():
        y = kind(kind.x * 1)
    kind.driver.on_launch = waiting
    del kind.driver.launched[:]
    other = threading.Thread(target=torch.autograd.grad, args=(y.sum(), kind.tensors))
    other.start()
    assert running.wait(30)
    with recompute_outputs():
        z = conv2d(y, w)
    used.set()
    other.join()
    assert torch.equal(torch.autograd.grad(z.square().sum(), w)[0], expected)
    assert kind.driver.launched == [BACKWARD]


def test_outputs_that_python_knows_are_no_hindrance() -> None:
    kind, other = Kind(), SReLU(5)
    other.frozen = True
    with recompute_outputs():
        noted = other(kind.x * 1)
        assert len(memory._outputs) == 1
        y = kind(kind.x * 1)
        assert len(memory._outputs) == 1
        first, second = conv2d(noted, weight()), conv2d(y, weight())
        chained = kind(noted)
        assert len(memory._outputs) == 2
    grads = torch.autograd.grad((first * second * chained).sum(), kind.tensors)
    y, noted = kind(kind.x * 1), other(kind.x * 1)
    z = conv2d(noted, weight()) * conv2d(y, weight()) * kind(noted)
    assert all(map(torch.equal, grads, torch.autograd.grad(z.sum(), kind.tensors)))


@pytest.mark.parametrize("which", range(6))
def test_what_backward_needs_must_not_be_modified(which) -> None:
    kind = Kind(biased=True)
    inputs = [kind.x * 1, *kind.tensors[1:]]
    with recompute_outputs():
        y = conv2d(kind(inputs[0]), weight())
    with torch.no_grad():
        inputs[which].add_(1)
    with pytest.raises(RuntimeError, match="modified"):
        y.sum().backward()


def test_an_output_is_not_kept() -> None:
    kind = Kind()
    with recompute_outputs():
        x = kind.x * 1
        y = kind(x)
        z = conv2d(y, weight())
    output, behind = weakref.ref(y.untyped_storage()), weakref.ref(x.untyped_storage())
    del x, y
    assert output() is None  # kept by nobody
    assert behind() is not None  # kept by the unit
    z.sum().backward()
    assert behind() is None


def test_an_output_that_lives_on_does_not_hold_its_input() -> None:
    kind, w = Kind(), weight()
    with recompute_outputs():
        x = kind.x * 1
        y = kind(x)
        conv2d(y, w).sum().backward()
        behind = weakref.ref(x.untyped_storage())
        del x
        assert behind() is None
        again = y.detach().requires_grad_()
        z = conv2d(again, w)  # cannot be recomputed any more: is kept
    z.sum().backward()
    assert torch.equal(again.grad, torch.autograd.grad(conv2d(again, w).sum(), again)[0])


def view_of(y: torch.Tensor) -> torch.Tensor:
    """Not a leaf, in the memory of ``y``, without its graph."""
    return y.detach().requires_grad_().flatten(2).unflatten(2, y.shape[2:])


def test_parameters_may_change_once_the_graph_of_a_unit_is_gone() -> None:
    kind, w = Kind(), weight()
    x = kind.x * 1  # held here: that it lives does not say that autograd keeps it
    with recompute_outputs():
        y = kind(x)
        y.sum().backward()
        with torch.no_grad():
            kind.params[0].add_(1)
        later = [conv2d(view_of(y), w), conv2d(y, w)]
    for z in later:
        (found,) = torch.autograd.grad(z.square().sum(), w)
        (expected,) = torch.autograd.grad(conv2d(y.detach(), w).square().sum(), w)
        assert torch.equal(found, expected)


def test_an_input_may_change_once_the_graph_of_a_unit_is_gone() -> None:
    kind, w = Kind(), weight()
    x = kind.x.detach().clone()
    with recompute_outputs():
        y = kind(x).detach()
        z = conv2d(view_of(y), w)
    x.add_(1)
    (found,) = torch.autograd.grad(z.square().sum(), w)
    (expected,) = torch.autograd.grad(conv2d(y, w).square().sum(), w)
    assert torch.equal(found, expected)


def test_no_cycle_where_an_input_is_written_to() -> None:
    kind, w = Kind(), weight()
    x = kind.x.detach().clone()
    behind = weakref.ref(x.untyped_storage())
    with recompute_outputs():
        x.add_(conv2d(view_of(kind(x)), w))
    del x
    gc.collect()
    assert behind() is None


def test_hooks_inside_see_what_a_unit_keeps() -> None:
    kind, packed = Kind(), []
    with recompute_outputs(), saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = conv2d(kind(), weight())
    assert any(t is kind.x for t in packed)
    assert any(t.shape == y.shape and t is not kind.x for t in packed)  # the output, kept as ever


def test_hooks_outside_are_not_asked() -> None:
    kind, packed = Kind(), []
    with saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t), recompute_outputs():
        conv2d(kind(), weight()).sum().backward()
    assert not packed
    with saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        kind()
    assert packed  # and are back


def test_bad_arguments_raise_what_they_always_raise() -> None:
    kind = Kind()
    with recompute_outputs(), pytest.raises(TypeError, match="x must be a tensor"):
        srelu([1.0], *kind.params)  # type: ignore[arg-type]
