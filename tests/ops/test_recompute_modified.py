"""recompute_outputs with in-place writes: into outputs, inputs, parameters, saved copies."""

import contextlib

import pytest
import torch
from torch import nn

from recomputing import CHANNELS, Call, assert_same_gradients, conv, images, unit
from small_networks import same
from torch_srelu import SReLU, recompute_outputs

pytestmark = pytest.mark.usefixtures("one_thread")


def test_an_output_modified_before_it_is_saved() -> None:
    net = nn.Sequential(unit(), Call(lambda y: y.mul_(2)), conv(), unit(), nn.ReLU(inplace=True))
    assert_same_gradients(net, images(requires_grad=True))


def test_an_output_modified_after_it_was_saved() -> None:
    """Autograd raises; it is recomputed as it was."""
    layer, act, x = conv(), unit(), images(requires_grad=True)

    def loss(write):
        y = act(x)
        z = layer(y)
        return (z + (y.add_(1) if write else y + 1)).sum()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss(write=True).backward()
    leaves = [x, *act.parameters(), *layer.parameters()]
    expected = torch.autograd.grad(loss(write=False), leaves)
    with recompute_outputs():
        ours = loss(write=True)
    assert same(torch.autograd.grad(ours, leaves), expected)


@pytest.mark.parametrize("which", ["input", "t_r", "a_r", "t_l", "a_l", "weight"])
def test_what_backward_needs_must_not_be_modified(which) -> None:
    first, act, last = conv(), unit(), conv()
    for context in (contextlib.nullcontext(), recompute_outputs()):
        with context:
            x = first(images())
            loss = last(act(x)).sum()
        modified = {"input": x, "weight": last.weight, **dict(act.named_parameters())}[which]
        with torch.no_grad():
            modified.mul_(2)
        with pytest.raises(RuntimeError, match=r"modified .*in.?place .*version \d"):
            loss.backward()


def test_parameters_without_a_gradient_may_change() -> None:
    act, last, x = unit().requires_grad_(False), conv(), images(requires_grad=True)
    found = []
    for context in (contextlib.nullcontext(), recompute_outputs()):
        with context:
            loss = last(act(x)).square().sum()
        with torch.no_grad():
            act.a_r.mul_(2)
        found.append(torch.autograd.grad(loss, last.weight))
        with torch.no_grad():
            act.a_r.div_(2)
    assert same(*found)


def test_parameters_with_a_gradient_are_needed_where_the_output_is() -> None:
    act, last = unit(), conv()
    with recompute_outputs():
        loss = last(act(images())).square().sum()
    with torch.no_grad():
        act.a_r.mul_(2)
    with pytest.raises(RuntimeError, match=r"modified in place .*version \d"):
        torch.autograd.grad(loss, last.weight)


@pytest.mark.parametrize("size", [0, 2, CHANNELS])
def test_parameters_may_be_given_other_values(size) -> None:
    """`p.data = ...`, which torch.nn.utils.vector_to_parameters and offloading do."""
    act, last, x = unit(), conv(), images()
    found = []
    for context in (contextlib.nullcontext(), recompute_outputs()):
        before = [p.data for p in act.parameters()]
        with context:
            loss = last(act(x)).square().sum()
        for p in act.parameters():
            p.data = torch.full((size,), 9.0)
        found.append(torch.autograd.grad(loss, last.weight))
        for p, value in zip(act.parameters(), before, strict=True):
            p.data = value
    assert same(*found)


@pytest.mark.parametrize("shape", [(3, CHANNELS, 8, 8), (2, 3, 2, 2)])
def test_an_input_may_be_given_other_values(shape) -> None:
    """By ``.data``, which autograd does not see; the saved input is unchanged."""
    act, layer, x = unit(), conv(), images(requires_grad=True)
    expected = torch.autograd.grad(layer(act(x)).square().sum(), [*layer.parameters()])
    with recompute_outputs():
        z = layer(act(x))
    x.data = torch.randn(shape)
    assert same(torch.autograd.grad(z.square().sum(), [*layer.parameters()]), expected)


def test_every_layer_gets_its_own_copy() -> None:
    class Overwrites(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            ctx.save_for_backward(y)
            return y * y / 2

        @staticmethod
        def backward(ctx, grad):  # type: ignore[override]
            (y,) = ctx.saved_tensors
            return y.mul_(grad)

    def gradient(*layers) -> torch.Tensor:
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        with recompute_outputs():
            y = SReLU(3)(x)
            loss = sum((layer(y).sum() for layer in layers), torch.zeros(()))
        return torch.autograd.grad(loss, x)[0]

    apart = gradient(Overwrites.apply) + gradient(torch.sin)
    torch.testing.assert_close(gradient(Overwrites.apply, torch.sin), apart)
    torch.testing.assert_close(gradient(torch.sin, Overwrites.apply), apart)
