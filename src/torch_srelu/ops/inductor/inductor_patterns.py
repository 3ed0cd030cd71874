"""What torch.compile's Inductor makes of SReLU's backward pass on a GPU.

It stays one operator, which sums faster than generated code (docs/speed.md), and takes over what
stands beside it in the graph: gradients of two users of an output, as in a residual network, are
added in its kernel, and so are the two sums that a batch normalisation before SReLU needs. The
output of that normalisation is not kept if it can be recomputed.

Inductor's cache on disk does not depend on this file: after a change of it, clear the cache.
"""

from __future__ import annotations

import functools
import operator
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ... import _torch_compat
from .inductor_batch_norm import find_norm, value


def register() -> None:
    """Registers the pattern, if the compiler is loaded; called whenever SReLU is traced.

    The compiler is not imported for it: other backends of torch.compile do without.
    """
    if _torch_compat.inductor_is_loaded():
        _register()


@functools.cache
def _register() -> None:
    operator = torch.ops.torch_srelu.srelu_backward.default
    missing = _torch_compat.register_inductor_pattern(operator, _fuse_backward)
    if missing is not None:
        warnings.warn(
            "torch.compile cannot fuse SReLU with its neighbours, since this torch lacks what "
            f"that needs ({missing}): results are right, and slower on a GPU than they could be. "
            "A newer torch-srelu may support this torch",
            RuntimeWarning,
            stacklevel=2,
        )


def _fuse_backward(match: Any, grad: Node, x: Node, *arguments: Any) -> None:
    """Replaces the backward operator by the one that computes its neighbours as well."""
    call, (*params, dim, need_input, need_params) = match.output_node(), arguments[:7]
    biased = any(argument is not None for argument in arguments[7:8])
    if biased or not (need_input and _has_fused_kernel(value(x))):
        return
    grads = grad.args if _is_sum_of_two_in_memory(grad) else (grad, None)
    norm = find_norm(call, x, params[0], dim)
    if norm is None and grads[1] is None:
        return
    fields = [None] * 5 if norm is None else norm.write_before(call)
    kept = x if norm is None or norm.made is None else None
    _call_fused(call, (*grads, kept, *params, dim, need_params, *fields), value(grad))
    if norm is not None:
        norm.take_sums(call)


def _has_fused_kernel(x: Tensor) -> bool:
    return x.is_cuda


def _call_fused(call: Node, arguments: tuple[Any, ...], grad: Tensor) -> None:
    """Makes ``call`` one of the operator for all of this; ``grad`` is the gradient as a whole."""
    call.target = torch.ops.torch_srelu.srelu_backward_fused.default
    call.args = arguments
    values = tuple(value(a) if isinstance(a, Node) else a for a in arguments)
    with value(call)[0].fake_mode:
        call.meta["val"] = call.target(*values)
    if "eager_input_vals" in call.meta:  # which layouts it gets: both parts that of the whole
        second_grad = None if values[1] is None else grad
        call.meta["eager_input_vals"] = ((grad, second_grad, *values[2:]), {})


def _is_sum_of_two_in_memory(grad: Node) -> bool:
    """Whether a gradient is made, for one user, of two of its own kind that lie in memory anyway.

    A part that the compiler makes itself is best added there, before it is written.
    """
    if grad.target is not torch.ops.aten.add.Tensor or grad.kwargs or len(grad.users) > 1:
        return False
    parts = [p for p in grad.args if isinstance(p, Node) and _is_in_memory(p)]
    values, whole = [value(p) for p in parts], value(grad)
    return len([v for v in values if v.dtype == whole.dtype and v.shape == whole.shape]) == 2


def _is_in_memory(node: Node) -> bool:
    """Whether it comes from elsewhere, or of what is no loop of the compiler's own."""
    while node.target in _VIEWS and isinstance(node.args[0], Node):
        node = node.args[0]
    # Convolutions' gradients and our own are members of tuples.
    return node.op == "placeholder" or node.target is operator.getitem or node.target in _PRODUCTS


_VIEWS = (torch.ops.aten.view.default, torch.ops.aten.reshape.default)
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
