"""Tensors of a kind that native/eager.cpp has learnt, on the CPU.

The kernels are those of a stand-in for the driver; all else is as on a GPU.
"""

import torch

from driver import Driver
from torch_srelu import srelu, use_backend
from torch_srelu.ops import cpp

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
_sizes = iter(range(3, 10_000))  # a kind of call is never forgotten: every test has its own


class Kind:
    """Tensors of one kind, and the driver that was learnt for them; ``trains``: backward too."""

    def __init__(self, layout="contiguous", biased=False, alone=True, dim=1, trains=True) -> None:
        torch.manual_seed(0)
        channels = 5
        x = torch.randn(2, channels, next(_sizes), 4, dtype=torch.float64)
        draw = torch.randn(4 + biased, channels, dtype=torch.float64)
        self.exact = [t.requires_grad_() for t in (x, *draw.unbind())]
        self.x = x.detach().float().to(memory_format=LAYOUTS[layout]).requires_grad_()
        self.params = [p.detach().float().clone().requires_grad_() for p in draw[:4]]
        self.bias = draw[4].detach().float().clone().requires_grad_() if biased else None
        self.dim, self.driver = dim, Driver(self.x, channels, dim, biased, alone)
        self.learn(trains)

    def learn(self, trains: bool) -> None:
        launches = self.driver.launches()
        if not trains:
            launches = (launches[0], None, None, (0, 0))
        assert cpp.compiled.learn(self.x, *self.params, self.dim, self.bias, *launches)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [self.x, *self.params, *([] if self.bias is None else [self.bias])]

    def __call__(self, x=None, **options) -> torch.Tensor:
        x = self.x if x is None else x
        return srelu(x, *self.params, self.dim, bias=self.bias, **options)

    def expected(self, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, t_r, a_r, t_l, a_l, *bias = self.exact
        with use_backend("reference"):
            y = srelu(x, t_r, a_r, t_l, a_l, self.dim, bias=bias[0] if bias else None)
        return y, *torch.autograd.grad(y, self.exact, grad.double())


def close(found, expected) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
