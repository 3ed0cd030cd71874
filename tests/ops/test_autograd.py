"""Gradients of SReLU: frozen parameters, autocast, checkpointing, higher orders."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_srelu
from checks import DEVICE, random_inputs
from torch_srelu import SReLU
from torch_srelu.ops import reference


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    """Low precision in, the same out; the parameters stay float32 and so do their gradients."""
    net = nn.Sequential(nn.Linear(4, 6), SReLU(6)).to(DEVICE)
    with torch.autocast(DEVICE, dtype):
        y = net(torch.randn(3, 4, device=DEVICE))
    assert y.dtype == dtype
    y.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())


def test_activation_checkpointing() -> None:
    x, params = random_inputs()
    expected = torch.autograd.grad(torch_srelu.srelu(x, *params).square().sum(), [x, *params])
    y = checkpoint(torch_srelu.srelu, x, *params, use_reentrant=False)
    got = torch.autograd.grad(y.square().sum(), [x, *params])  # type: ignore[union-attr]
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("compiled", [False, True])
def test_frozen_gradients_are_zeros_not_none(compiled: bool) -> None:
    unit = SReLU(3, a_r=0.5).to(DEVICE)
    unit.frozen = True
    x = torch.randn(2, 3, 4, device=DEVICE, requires_grad=True)
    y = (torch.compile(unit, fullgraph=True) if compiled else unit)(x)
    y.square().sum().backward()
    assert all(
        torch.equal(p.grad, torch.zeros_like(p)) for p in unit.parameters() if p.grad is not None
    )
    assert all(p.grad is not None for p in unit.parameters())
    frozen_grad = x.grad
    x.grad, unit.frozen = None, False
    unit(x).square().sum().backward()
    assert frozen_grad is not None
    assert torch.equal(frozen_grad, x.grad)  # type: ignore[arg-type]
    assert unit.a_l.grad is not None
    assert unit.a_l.grad.abs().sum() > 0


def test_only_what_requires_a_gradient_gets_one() -> None:
    x, params = random_inputs()
    (only,) = torch.autograd.grad(torch_srelu.srelu(x.detach(), *params).sum(), [params[3]])
    full = torch.autograd.grad(torch_srelu.srelu(x, *params).sum(), [x, *params])
    assert torch.equal(only, full[4])
    fixed = [p.detach() for p in params]
    assert torch.equal(torch.autograd.grad(torch_srelu.srelu(x, *fixed).sum(), [x])[0], full[0])


def test_third_derivatives() -> None:
    """The double backward is made of plain operators: autograd goes on from there."""
    x, params = random_inputs(torch.float64)
    params = [p.detach().double().requires_grad_() for p in params]

    def second(function):
        y = function(x, *params)
        (first,) = torch.autograd.grad((y**3).sum(), [x], create_graph=True)
        (mixed,) = torch.autograd.grad((first**2).sum(), [params[1]], create_graph=True)
        return torch.autograd.grad(mixed.sum(), [x, *params])

    ours, plain = second(torch_srelu.srelu), second(lambda *t: reference.srelu(*t, 1))
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b)
