"""Layers: initial weights, dense layers, convolutions as products, normalisation, norm limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torch_srelu.lab.models.convolutions import conv_as_matmul, convolve
from torch_srelu.lab.models.layers import (
    LRN,
    ActivatedLayer,
    ConvSpec,
    DenseSpec,
    he,
    limit_norm,
    normal,
    uniform,
    xavier,
)
from torch_srelu.lab.runtime.seeds import generator


@pytest.mark.parametrize(
    ("initializer", "std"),
    [
        (normal(0.3), 0.3),
        (uniform(0.3), 0.3 / math.sqrt(3)),
        (he, math.sqrt(2 / 270)),
        (xavier, math.sqrt(1 / 270)),
    ],
)
def test_initial_weights_have_their_deviation(initializer, std):
    before = torch.random.get_rng_state()
    conv = ConvSpec("conv", 40, 3, initializer=initializer, bias=0.2).build(
        30, 5, generator(0, "weights")
    )
    assert conv.weight.std().item() == pytest.approx(std, rel=0.03)
    assert conv.weight.mean().abs().item() < std / 20
    assert conv.bias is not None
    assert torch.equal(conv.bias, torch.full((40,), 0.2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_dense_layer_acts_like_a_convolution_of_the_whole_image():
    spec = DenseSpec("dense", 7, initializer=normal(0.1), acts=False)
    linear = spec.build(3, 4, generator(1, "weights"))
    x = torch.randn(2, 3, 4, 4)
    expected = F.conv2d(x, linear.weight.view(7, 3, 4, 4), linear.bias)
    torch.testing.assert_close(ActivatedLayer(spec, linear, nn.Identity())(x), expected)


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 7), st.integers(1, 7)),
    outputs=st.integers(1, 20),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    padding=st.integers(2, 3),
    layout=st.sampled_from([torch.contiguous_format, torch.channels_last]),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_a_convolution_as_matmul_is_a_convolution(
    sizes, outputs, kernel, stride, padding, layout, seed
):
    """Outputs and gradients, in float64; and in the layout that convolutions on a GPU want."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(sizes, generator=draws).double().contiguous(memory_format=layout)
    shape = (outputs, sizes[1], kernel, kernel)
    weight = torch.randn(shape, generator=draws).double().contiguous(memory_format=layout)
    x.requires_grad_(), weight.requires_grad_()
    expected = F.conv2d(x, weight, stride=stride, padding=padding)
    y = conv_as_matmul(x, weight, stride, padding)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, expected)
    grad = torch.randn(expected.shape, generator=draws).double()
    torch.testing.assert_close(
        torch.autograd.grad(y, (x, weight), grad), torch.autograd.grad(expected, (x, weight), grad)
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "stride", "padding", "needs_grad", "as_matmul"),
    [
        (3, 16, 7, 2, 3, False, True),  # GoogLeNet's first
        (3, 16, 8, 1, 4, False, True),  # maxout's
        (3, 16, 3, 1, 1, True, False),  # no gradient of windows
        (16, 10, 1, 1, 0, True, True),
        (16, 10, 1, 2, 0, True, False),
        (16, 16, 3, 1, 1, False, False),
    ],
)
@pytest.mark.parametrize("add_bias", [False, True])
def test_compiled_convolutions(
    inputs, outputs, kernel, stride, padding, needs_grad, as_matmul, add_bias
):
    """As a product of matrices where that is faster and right; with the same results."""
    spec = ConvSpec("conv", outputs, kernel, padding, stride, bias=2)
    made = spec.build(inputs, 9, generator(0, "weights"))
    x = torch.randn(2, inputs, 9, 9, requires_grad=needs_grad)
    graphs = []

    def keep(graph, example):
        graphs.append(graph.print_readable(print_output=False))
        return graph

    y = torch.compile(lambda x: convolve(made, x, add_bias), backend=keep, fullgraph=True)(x)
    torch.testing.assert_close(y, made(x) - (0 if add_bias else 2))
    assert ("linear" in graphs[0]) == as_matmul
    torch.testing.assert_close(convolve(made, x, add_bias), y)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_lrn_is_that_of_caffe(layout, compiled):
    x = (10 * torch.randn(2, 7, 3, 4)).contiguous(memory_format=layout).requires_grad_()
    lrn = LRN(5, alpha=0.02, beta=0.75)
    y = (torch.compile(lrn, fullgraph=True, backend="aot_eager") if compiled else lrn)(x)
    expected = F.local_response_norm(x, 5, alpha=0.02, beta=0.75, k=1.0)
    torch.testing.assert_close(y, expected)
    grad = torch.randn_like(y)
    torch.testing.assert_close(
        torch.autograd.grad(y, x, grad), torch.autograd.grad(expected, x, grad)
    )


def test_lrn_adds_squares_in_float32():
    x = torch.full((1, 5, 1, 1), 300.0, dtype=torch.float16)  # 300^2 is beyond float16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = LRN()(x)
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.float(), LRN()(x.float()), rtol=1e-3, atol=0)


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3, 3)])
def test_weights_above_a_norm_are_scaled_down_and_others_kept(shape):
    torch.manual_seed(0)
    scale = torch.linspace(0, 2, 6).reshape(-1, *[1] * (len(shape) - 1))  # the first is 0
    weight = torch.randn(shape) * scale
    before = weight.clone()
    limit_norm(weight, 1.5)
    for row, old in zip(weight, before, strict=True):
        norm = old.double().norm()
        expected = old.double() * min(1, 1.5 / norm) if norm else old.double()
        torch.testing.assert_close(row.double(), expected, rtol=1e-6, atol=1e-7)
    short = before.flatten(1).norm(dim=1) <= 1.5
    assert 0 < short.sum() < 6
    assert torch.equal(weight[short], before[short])
