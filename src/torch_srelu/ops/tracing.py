"""Whether SReLU is traced, transformed or intercepted, and which tensors kernels can read."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.jit import is_tracing as is_jit_tracing  # type: ignore[attr-defined]

from .. import _torch_compat

Tracing = Literal["plain operators", "custom operator"]

_ORDINARY = frozenset({Tensor, torch.nn.Parameter})


def tracing() -> Tracing | None:
    """What a tracer, transform or dispatch mode that is active needs to see; None if none is.

    Forward-mode AD and torch.func cannot look into a custom operator (forward-mode would give zeros
    silently), and exporters should find plain operators. Dynamo evaluates this function while it
    traces, so that it holds inside torch.compile too.
    """
    if _torch_compat.functorch_transforms_active() or _torch_compat.forward_ad_active():
        return "plain operators"
    if torch.compiler.is_compiling():
        return "plain operators" if _torch_compat.is_exporting() else "custom operator"
    if _torch_compat.is_exporting() or is_jit_tracing():
        return "plain operators"
    return "custom operator" if _torch_compat.dispatch_modes_active() else None


def is_ordinary(*tensors: Tensor) -> bool:
    """Whether no tensor is of a subclass, which may want to see the operators called on it."""
    return _ORDINARY.issuperset(map(type, tensors))


def is_readable(*tensors: Tensor) -> bool:
    """Whether the tensors are ordinary and their memory holds their values.

    It does not for lazy negation and zero tensors, meta tensors, and tensors without storage, such
    as a functorch BatchedTensor (torch.autograd.grad with is_grads_batched).
    """
    return is_ordinary(*tensors) and all(
        _torch_compat.has_storage(t)
        and not (t.is_neg() or _torch_compat.is_zero_tensor(t) or t.is_meta)
        for t in tensors
    )
