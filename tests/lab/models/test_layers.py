"""Layers: how weights start, dense maps among images, local response normalisation."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torch_srelu.lab.models.layers import (
    LRN,
    Layer,
    conv_by_matrices,
    convolution,
    convolve,
    dense,
    he,
    normal,
    uniform,
    xavier,
)
from torch_srelu.lab.runtime.seeds import generator


@pytest.mark.parametrize(
    ("start", "std"),
    [
        (normal(0.3), 0.3),
        (uniform(0.3), 0.3 / math.sqrt(3)),
        (he, math.sqrt(2 / 270)),
        (xavier, math.sqrt(1 / 270)),
    ],
)
def test_weights_start_with_their_deviation(start, std):
    before = torch.random.get_rng_state()
    conv = convolution(30, 40, 3, start, generator(0, "weights"), bias=0.2)
    assert conv.weight.std().item() == pytest.approx(std, rel=0.03)
    assert conv.weight.mean().abs().item() < std / 20
    assert conv.bias is not None
    assert torch.equal(conv.bias, torch.full((40,), 0.2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_dense_layer_acts_like_a_convolution_of_the_whole_image():
    linear = dense(3 * 4 * 5, 7, normal(0.1), generator(1, "weights"))
    x = torch.randn(2, 3, 4, 5)
    expected = F.conv2d(x, linear.weight.view(7, 3, 4, 5), linear.bias)
    torch.testing.assert_close(Layer(linear, nn.Identity())(x), expected)


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
def test_a_convolution_by_matrices_is_a_convolution(
    sizes, outputs, kernel, stride, padding, layout, seed
):
    """Outputs and gradients, in float64; and in the layout that convolutions on a GPU want."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(sizes, generator=draws).double().contiguous(memory_format=layout)
    shape = (outputs, sizes[1], kernel, kernel)
    weight = torch.randn(shape, generator=draws).double().contiguous(memory_format=layout)
    x.requires_grad_(), weight.requires_grad_()
    expected = F.conv2d(x, weight, stride=stride, padding=padding)
    y = conv_by_matrices(x, weight, stride, padding)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, expected)
    grad = torch.randn(expected.shape, generator=draws).double()
    torch.testing.assert_close(
        torch.autograd.grad(y, (x, weight), grad), torch.autograd.grad(expected, (x, weight), grad)
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "stride", "padding", "needs_grad", "by_matrices"),
    [
        (3, 16, 7, 2, 3, False, True),  # GoogLeNet's first
        (3, 16, 8, 1, 4, False, True),  # maxout's
        (3, 16, 3, 1, 1, True, False),  # no gradient of windows
        (16, 10, 1, 1, 0, True, True),
        (16, 10, 1, 2, 0, True, False),
        (16, 16, 3, 1, 1, False, False),
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_compiled_convolutions(
    inputs, outputs, kernel, stride, padding, needs_grad, by_matrices, biased
):
    """Of matrices where that is quicker and right; the same as ever in any case."""
    made = convolution(
        inputs, outputs, kernel, he, generator(0, "weights"), stride=stride, padding=padding, bias=2
    )
    x = torch.randn(2, inputs, 9, 9, requires_grad=needs_grad)
    graphs = []

    def keep(graph, example):
        graphs.append(graph.print_readable(print_output=False))
        return graph

    y = torch.compile(lambda x: convolve(made, x, biased), backend=keep, fullgraph=True)(x)
    torch.testing.assert_close(y, made(x) - (0 if biased else 2))
    assert ("linear" in graphs[0]) == by_matrices
    torch.testing.assert_close(convolve(made, x, biased), y)


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
