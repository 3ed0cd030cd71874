"""The context recompute_outputs: nesting, threads, errors, other hooks, compiled code."""

import contextlib
import threading

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu

from recomputing import Call, conv, gradients, images, unit
from small_networks import same
from torch_srelu import recompute_outputs
from torch_srelu.ops import recompute

pytestmark = pytest.mark.usefixtures("one_thread")


def test_other_hooks_inside_and_outside() -> None:
    net, x = nn.Sequential(conv(), unit(), conv()), images(requires_grad=True)
    expected = gradients(net, x, contextlib.nullcontext())
    with recompute_outputs():
        assert same(gradients(net, x, save_on_cpu()), expected)
    with save_on_cpu(), recompute_outputs():
        assert same(gradients(net, x, recompute_outputs()), expected)


def test_threads() -> None:
    """The context is that of a thread; backward may run in another."""
    net, x = nn.Sequential(unit(), conv()), images(requires_grad=True)
    expected = torch.autograd.grad(net(x).sum(), [x, *net.parameters()])
    found = []

    def elsewhere(loss):
        found.append(torch.autograd.grad(loss, [x, *net.parameters()]))
        found.append(recompute.is_active())

    with recompute_outputs():
        thread = threading.Thread(target=elsewhere, args=(net(x).sum(),))
        thread.start()
        thread.join()
    assert same(found, [expected, False])


def test_an_exception_ends_the_context() -> None:
    with pytest.raises(ZeroDivisionError), recompute_outputs():
        unit()(images(requires_grad=True) / (1 // 0))
    assert not recompute.is_active()
    with pytest.raises(ValueError, match="channels"), recompute_outputs():
        unit()(torch.ones(2, 3, requires_grad=True))
    net, x = nn.Sequential(unit(), conv()), images(requires_grad=True)
    with recompute_outputs():  # an error in the middle of a unit leaves nothing half done
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: 1 // 0, lambda t: t)
        with pytest.raises(ZeroDivisionError), hooks:
            net(x)
        kept = net(x).sum()
    kept.backward()
    assert not recompute.is_active()


def test_a_context_may_be_entered_again() -> None:
    context = recompute_outputs()
    with context:
        with context:
            assert recompute.is_active()
        assert recompute.is_active()
    assert not recompute.is_active()


@pytest.mark.parametrize("where", ["inside", "decorated", "outside"])
def test_compiled_code(where) -> None:
    net, x = nn.Sequential(conv(), unit(), conv()), images(requires_grad=True)
    expected = gradients(net, x, contextlib.nullcontext())

    def inside(x):
        with recompute_outputs():
            return net(x)

    function = {"inside": inside, "decorated": recompute_outputs()(inside), "outside": net}[where]
    around = Call(torch.compile(function, backend="aot_eager", fullgraph=True))
    around.net = net
    context = recompute_outputs() if where == "outside" else contextlib.nullcontext()
    found = gradients(around, x, context)
    torch.testing.assert_close(found, expected)
