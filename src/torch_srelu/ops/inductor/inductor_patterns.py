"""What torch.compile's own compiler makes of SReLU, on a GPU above all.

* The forward pass in plain operators, which it fuses with what comes before, such as batch
  normalisation and a residual sum; an operator that it cannot see into reads and writes the tensor
  once more.
* The backward pass as an operator, since it would sum more slowly itself (docs/speed.md), which
  takes along what it finds beside it (`joined`): gradients of two users of an output that meet, as
  in a residual network, are added there, and so are the two sums that a batch normalisation before
  SReLU needs. What that normalisation computed is not kept if it can be had again.
* Operators that are left, on a CPU too, in a form that costs the host less (`BARE`).

What torch.compile keeps on disk does not depend on this file: after a change of it, old code is
used until that is cleared, or fails for want of an operator that it names.
"""

from __future__ import annotations

import functools
import operator
import sys
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from .. import reference
from .inductor_batch_norm import find_norm, value

BARE: dict[Any, Any] = {}  # operators, and what compiled code calls instead


def teach() -> None:
    """Tells the compiler, once it is there, what our operators are made of.

    Called whenever SReLU is traced, and so before it is compiled. The compiler is not imported for
    this: other backends of torch.compile do without.
    """
    if "torch._inductor.fx_passes.post_grad" in sys.modules:
        _teach()


@functools.cache
def _teach() -> None:
    operators = torch.ops.torch_srelu
    try:
        from torch._inductor.fx_passes import joint_graph, post_grad
        from torch._inductor.pattern_matcher import CallFunctionVarArgs, register_graph_pattern

        # Forward after the split into forward and backward, so that what is kept between them stays
        # the input; after the compiler's first round of patterns, and before it fuses anything.
        # Backward before that split, which then finds what need not be kept.
        taught: Any = (
            (operators.srelu.default, post_grad.pass_patterns[1], _see_forward),
            (operators.srelu_backward.default, joint_graph.pass_patterns[0], _see_backward),
        )
        taught += tuple((usual, post_grad.pass_patterns[2], _go_bare) for usual in BARE)
        for called, patterns, handler in taught:
            register_graph_pattern(CallFunctionVarArgs(called), pass_dict=patterns)(handler)
    except (ImportError, LookupError, TypeError) as error:  # nothing of this is torch's public API
        warnings.warn(
            f"torch.compile cannot fuse SReLU with its neighbours, since torch has changed "
            f"({error}): what it computes is right, and slower on a GPU than it was. A newer "
            "torch-srelu may know this torch",
            RuntimeWarning,
            stacklevel=2,
        )


def _go_bare(match: Any, *arguments: Any) -> None:
    """Calls the operator that does without all that compiled code is past."""
    call = match.output_node()
    call.target = BARE[call.target]


def _see_forward(match: Any, x: Node, *arguments: Any) -> None:
    """Puts the definition in the place of the operator."""
    *params, dim, _ = arguments
    if _suits(value(x)):
        match.replace_by_example(lambda *given: reference.srelu(*given, dim), [x, *params])  # type: ignore[call-arg]


def _suits(x: Tensor) -> bool:
    """Not on a CPU, whose kernels are faster than what the compiler makes for it."""
    return x.is_cuda


def _see_backward(match: Any, grad: Node, x: Node, *arguments: Any) -> None:
    """Gives the backward operator what lies beside it."""
    call, (*params, dim, need_input, need_params) = match.output_node(), arguments
    if not (need_input and _suits(value(x))):
        return
    grads = grad.args if _is_sum_of_two(grad) else (grad, None)
    norm = find_norm(call, x, params[0], dim)
    if norm is None and grads[1] is None:
        return
    fields = [None] * 5 if norm is None else norm.write_before(call)
    kept = x if norm is None or norm.made is None else None
    _call_joined(call, (*grads, kept, *params, dim, need_params, *fields), value(grad))
    if norm is not None:
        norm.take_sums(call)


def _call_joined(call: Node, arguments: tuple[Any, ...], grad: Tensor) -> None:
    """Makes ``call`` one of the operator for all of this; ``grad`` is the gradient as a whole."""
    call.target = torch.ops.torch_srelu.srelu_backward_joined.default
    call.args = arguments
    values = tuple(value(a) if isinstance(a, Node) else a for a in arguments)
    with value(call)[0].fake_mode:
        call.meta["val"] = call.target(*values)
    if "eager_input_vals" in call.meta:  # which layouts it gets: both parts that of the whole
        more = None if values[1] is None else grad
        call.meta["eager_input_vals"] = ((grad, more, *values[2:]), {})


def _is_sum_of_two(grad: Node) -> bool:
    """Whether a gradient is made, for one user, of two of its own kind that lie in memory anyway.

    A part that the compiler makes itself is best added there, before it is written.
    """
    if grad.target is not torch.ops.aten.add.Tensor or grad.kwargs or len(grad.users) > 1:
        return False
    parts = [p for p in grad.args if isinstance(p, Node) and _lies_in_memory(p)]
    values, whole = [value(p) for p in parts], value(grad)
    return len([v for v in values if v.dtype == whole.dtype and v.shape == whole.shape]) == 2


def _lies_in_memory(node: Node) -> bool:
    """Whether it comes from elsewhere, or of what is no loop of the compiler's own."""
    while node.target in _VIEWS and isinstance(node.args[0], Node):
        node = node.args[0]
    # Convolutions' gradients and our own are members of tuples.
    return node.op == "placeholder" or node.target is operator.getitem or node.target in _PRODUCTS


_VIEWS = (torch.ops.aten.view.default, torch.ops.aten.reshape.default)
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
