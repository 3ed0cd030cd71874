"""The custom operators: compiled, batched, traced, and called directly."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torch_srelu
from checks import DEVICE, LAYOUTS, lay_out, random_inputs
from torch_srelu.ops import reference


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiles_as_one_graph(layout: str) -> None:
    """fullgraph, dynamic shapes, Inductor; values and gradients equal eager's to the bit."""
    compiled = torch.compile(torch_srelu.srelu, fullgraph=True, dynamic=True)
    for size in (3, 5):
        x, params = random_inputs()
        x = lay_out(torch.randn(size, 6, size, 4, device=DEVICE), layout).requires_grad_()
        eager, graph = torch_srelu.srelu(x, *params), compiled(x, *params)
        assert graph.stride() == eager.stride()
        assert torch.equal(eager, graph)
        upstream = torch.randn_like(eager)
        expected = torch.autograd.grad(eager, [x, *params], upstream)
        got = torch.autograd.grad(graph, [x, *params], upstream)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    "in_dims", [(0, None, None, None, None), (0, 0, 0, 0, 0), (2, None, 0, None, 1)]
)
def test_vmap(in_dims) -> None:
    torch.manual_seed(0)
    batch, channels = 3, 4
    shapes = [(5, channels, 2), *[(channels,)] * 4]
    tensors = [
        torch.randn(shape) if d is None else torch.randn(batch, *shape).movedim(0, d)
        for shape, d in zip(shapes, in_dims, strict=True)
    ]
    expected = [
        reference.srelu(
            *(t if d is None else t.select(d, i) for t, d in zip(tensors, in_dims, strict=True)), 1
        )
        for i in range(batch)
    ]
    assert torch.equal(torch.vmap(torch_srelu.srelu, in_dims)(*tensors), torch.stack(expected))
    # and the operator itself, as a graph would call it
    operator = torch.vmap(lambda *t: torch.ops.torch_srelu.srelu(*t, 1, False), in_dims)(*tensors)
    assert torch.equal(operator, torch.stack(expected))


def test_a_trace_before_dispatch_holds_the_operator() -> None:
    x, params = random_inputs(requires_grad=False)
    traced = make_fx(lambda x: torch_srelu.srelu(x, *params), pre_dispatch=True)(x)
    other = torch.randn_like(x)
    torch.testing.assert_close(traced(other), torch_srelu.srelu(other, *params))


def test_the_operators_refuse_what_does_not_fit() -> None:
    """They can be called without the checks of `srelu`; kernels must not read past the end."""
    x, two = torch.randn(4, 3), [torch.ones(2)] * 4
    with pytest.raises(ValueError, match=r"do not fit x.*expected 3 values each, or 1"):
        torch.ops.torch_srelu.srelu(x, *two, 1, False)
    three = [torch.ones(3)] * 4
    with pytest.raises(ValueError, match=r"grad is torch\.float64"):
        torch.ops.torch_srelu.srelu_backward(x.double(), x, *three, 1, True, True)


@pytest.mark.parametrize("channels", [3, 1])
def test_batches_of_units_with_a_bias(channels: int) -> None:
    """The operators' rules for vmap, as for a traced graph."""
    torch.manual_seed(0)
    x, grad = torch.randn(2, 5, 4, channels, 3)
    params, bias = torch.randn(4, 5, channels), torch.randn(5, channels)

    def unit(x, grad, t_r, a_r, t_l, a_l, bias):
        ops, params = torch.ops.torch_srelu, (t_r, a_r, t_l, a_l)
        y = ops.srelu(x, *params, 1, False, bias)
        return y, *ops.srelu_backward(grad, x, *params, 1, True, True, bias, True)

    given = (x, grad, *params, bias)
    batched = torch.vmap(unit)(*given)
    single = [unit(*(t[i] for t in given)) for i in range(5)]
    for got, expected in zip(batched, zip(*single, strict=True), strict=True):
        torch.testing.assert_close(got, torch.stack(expected))
