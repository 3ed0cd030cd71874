"""Layers and gradients for the tests of recompute_outputs."""

import contextlib

import torch
from torch import nn

from small_networks import same
from torch_srelu import SReLU, recompute_outputs

CHANNELS = 6


def unit(channels: int = CHANNELS) -> SReLU:
    """A unit all of whose regions are used."""
    act = SReLU(channels, t_r=0.4, a_r=0.6, t_l=-0.3, a_l=0.1)
    with torch.no_grad():
        for p in act.parameters():
            p.add_(0.1 * torch.randn(channels))
    return act


def images(requires_grad: bool = False) -> torch.Tensor:
    return torch.randn(3, CHANNELS, 8, 8).requires_grad_(requires_grad)


def conv() -> nn.Conv2d:
    return nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Call(nn.Module):
    """A layer that is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def gradients(net, x, context) -> list[torch.Tensor]:
    """The loss and all gradients of a training step."""
    leaves = [p for p in (x, *net.parameters()) if p.requires_grad]
    for p in leaves:
        p.grad = None
    torch.manual_seed(0)
    with context:
        loss = net(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad for p in leaves)]


def assert_same_gradients(net, x) -> None:
    plain = gradients(net, x, contextlib.nullcontext())
    assert same(gradients(net, x, recompute_outputs()), plain)
