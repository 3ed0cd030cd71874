"""Chooses how SReLU is computed: plain operators, a custom operator, or kernels called directly.

| when                                                        | what                               |
|-------------------------------------------------------------|------------------------------------|
| torch.func, forward-mode AD, torch.export, torch.jit.trace  | `reference`, which they can trace  |
| torch.compile, dispatch modes, tensor subclasses, a device  | `custom_ops`, one operator         |
| without kernels                                             |                                    |
| else                                                        | `autograd`, an autograd.Function   |
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import autograd, call_cache, custom_ops, execution, reference
from .arguments import Parameters, check
from .tracing import is_ordinary, tracing


def srelu(x: Tensor, params: Parameters, dim: int, bias: Tensor | None, frozen: bool) -> Tensor:
    """SReLU of ``x``, or of ``x + bias``; checks the arguments."""
    seen_by = tracing()
    call = call_cache.lookup(x, params, dim, bias) if seen_by is None else None
    if call is None:
        check(x, params, dim, bias)
        if bias is not None and bias.shape != params.t_r.shape:  # parameters shared by channels
            return srelu(execution.add_bias(x, bias, dim), params, dim, None, frozen)
        tensors = (x, *params) if bias is None else (x, *params, bias)
        if seen_by is None and not ((x.is_cuda or x.is_cpu) and is_ordinary(*tensors)):
            seen_by = "custom operator"
        if seen_by == "custom operator":
            return custom_ops.srelu(x, *params, dim, frozen, bias)
        if seen_by == "plain operators":
            params = Parameters(*map(_frozen, params)) if frozen else params
            return reference.srelu(execution.add_bias(x, bias, dim), *params, dim)
        call = call_cache.add(x, params, dim, bias)
    return autograd.srelu(x, params, dim, bias, frozen, call)


def _frozen(parameter: Tensor) -> Tensor:
    """The same values, with a gradient of zeros: `detach` alone would leave None."""
    everywhere = torch.ones_like(parameter, dtype=torch.bool)
    return torch.where(everywhere, parameter.detach(), parameter)
