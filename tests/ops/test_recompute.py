"""recompute_outputs: gradients are those of plain autograd, whatever follows the units."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from recomputing import (
    CHANNELS,
    Call,
    Residual,
    assert_same_gradients,
    conv,
    gradients,
    images,
    unit,
)
from small_networks import same
from torch_srelu import recompute_outputs, srelu

pytestmark = pytest.mark.usefixtures("one_thread")


def write_a_part(x):
    x[:, :3].mul_(2)
    return torch.cat([x[:, :3].tanh(), x[:, 3:] * x[:, :3]], 1)


# What may follow a unit: each saves its output or a view of it, or modifies it first.
LAYERS = {
    "conv": conv,
    "1x1": lambda: nn.Conv2d(CHANNELS, CHANNELS, 1),
    "batch norm": lambda: nn.BatchNorm2d(CHANNELS),
    "srelu": unit,
    "max pool": lambda: nn.MaxPool2d(3, 1, 1),
    "average pool": lambda: nn.AvgPool2d(3, 1, 1),
    "dropout": lambda: nn.Dropout(0.5),
    "dropout in place": lambda: nn.Dropout(0.5, inplace=True),
    "residual": lambda: Residual(unit(), conv(), unit()),
    "linear, of a view": lambda: nn.Sequential(
        nn.Flatten(2), nn.Linear(64, 64), nn.Unflatten(2, (8, 8))
    ),
    "square": lambda: Call(lambda x: x * x),
    "part times part": lambda: Call(lambda x: torch.cat([x[:, :2] * x[:, 2:4], x[:, 2:]], 1)),
    "part written to": lambda: Call(write_a_part),
    "written to": lambda: Call(lambda x: x.add_(1.0).sigmoid()),
    "transposed": lambda: Call(lambda x: x.mT.matmul(x) / 8),
}


@given(
    st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=5),
    st.sampled_from((torch.contiguous_format, torch.channels_last)),
    st.booleans(),
    st.sampled_from((torch.float32, torch.bfloat16)),
)
@settings(max_examples=60)
def test_gradients_do_not_change_by_a_bit(names, layout, needs_input, dtype) -> None:
    torch.manual_seed(0)
    layers = [layer for name in names for layer in (LAYERS[name](), unit())]
    net = nn.Sequential(conv(), unit(), *layers).to(dtype)
    for module in net[1::2]:
        module.float()  # parameters of SReLU stay in float32, as under autocast
    x = images(needs_input).to(dtype).detach().to(memory_format=layout).requires_grad_(needs_input)
    assert_same_gradients(net, x)


def test_double_backward() -> None:
    net, x = nn.Sequential(unit(), conv(), unit(), Call(torch.tanh)), images(requires_grad=True)
    found = []
    for context in (contextlib.nullcontext(), recompute_outputs()):
        with context:
            loss = net(x).square().sum()
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), [x, *net[0].parameters()]))
    assert same(*found)


def test_a_graph_that_is_used_twice() -> None:
    net, x = nn.Sequential(unit(), conv(), unit()), images(requires_grad=True)
    leaves = [x, *net.parameters()]
    with recompute_outputs():
        loss = net(x).square().sum()
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    assert same(first, torch.autograd.grad(loss, leaves))
    assert same(first, torch.autograd.grad(net(x).square().sum(), leaves))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_inside_and_outside(reentrant) -> None:
    block = nn.Sequential(conv(), unit(), conv(), unit())

    def checkpointed(x):
        return checkpoint(block, x, use_reentrant=reentrant)

    def inner(x):
        with recompute_outputs():
            return block(x)

    x = images(requires_grad=True)
    expected = gradients(block, x, contextlib.nullcontext())
    net = nn.Sequential(unit(), Call(checkpointed), block)
    assert_same_gradients(net, x)
    around = Call(lambda x: checkpoint(inner, x, use_reentrant=reentrant))
    around.block = block
    assert same(gradients(around, x, contextlib.nullcontext()), expected)


def test_a_sparse_tensor_may_be_saved_too() -> None:
    act, x = unit(5), torch.randn(4, 5, requires_grad=True)
    sparse = torch.eye(4).to_sparse()
    assert_same_gradients(nn.Sequential(act, Call(lambda y: torch.sparse.mm(sparse, y))), x)


def test_views_as_complex_numbers() -> None:
    def function(y):
        z = torch.view_as_complex(y)
        return z.conj().imag * z.real + (z.conj() * z.exp()).imag

    assert_same_gradients(nn.Sequential(unit(3), Call(function)), torch.randn(4, 3, 2))


def test_frozen_units() -> None:
    net = nn.Sequential(conv(), unit(), conv(), unit(), conv())
    net[1].frozen = True
    assert_same_gradients(net, images())


def test_vmap() -> None:
    act, x = unit(), torch.randn(2, 3, CHANNELS, 4, requires_grad=True)
    found = []
    for context in (contextlib.nullcontext(), recompute_outputs()):
        with context:
            y = torch.vmap(act)(x)
            found.append(torch.autograd.grad((y * y).sum(), [x, *act.parameters()]))
    assert same(*found)


def test_the_function_as_well_as_the_module() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    params = [torch.tensor([v] * 3) for v in (0.5, 0.7, -0.5, 0.1)]
    net = Call(lambda x: F.linear(srelu(x, *params), params[0][None]))
    assert_same_gradients(net, x)


def test_parameters_that_were_computed() -> None:
    scale, act, last, x = torch.ones(CHANNELS, requires_grad=True), unit(), conv(), images()
    found = []
    for context in (contextlib.nullcontext(), recompute_outputs()):
        with context:
            slopes = (act.t_r, act.a_r * scale, act.t_l, act.a_l * scale)
            loss = last(srelu(x, *slopes)).square().sum()
        found.append(torch.autograd.grad(loss, [scale, *last.parameters()]))
    assert same(*found)


@pytest.mark.parametrize("trained", [True, False])
def test_a_bias_of_the_unit(trained: bool) -> None:
    """It is added when the output is recomputed, as in the forward pass."""
    layer, own, bias = conv(), unit(), torch.randn(CHANNELS, requires_grad=trained)
    x = images().requires_grad_()
    wanted = [x, *own.parameters(), *layer.parameters(), *([bias] if trained else [])]

    def gradients() -> tuple[torch.Tensor, ...]:
        y = layer(srelu(x, own.t_r, own.a_r, own.t_l, own.a_l, bias=bias))
        return torch.autograd.grad(y.square().sum(), wanted)

    expected = gradients()
    with recompute_outputs():
        found = gradients()
    assert all(map(torch.equal, found, expected))
