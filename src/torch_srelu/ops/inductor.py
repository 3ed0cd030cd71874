"""What torch.compile's own compiler makes of SReLU on a GPU.

* The forward pass in plain operators, which it fuses with what comes before, such as batch
  normalisation and a residual sum; an operator that it cannot see into reads and writes the tensor
  once more.
* The backward pass as an operator, since it would sum more slowly itself (docs/speed.md); but where
  gradients of two users of an output meet, as in a residual network, the operator adds them.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from . import reference


def teach() -> None:
    """Tells the compiler, once it is there, what our operators are made of.

    Called whenever SReLU is traced, and so before it is compiled. The compiler is not imported for
    this: other backends of torch.compile do without.
    """
    if "torch._inductor.fx_passes.post_grad" in sys.modules:
        _teach()


@functools.cache
def _teach() -> None:
    from torch._inductor.fx_passes.post_grad import pass_patterns
    from torch._inductor.pattern_matcher import CallFunctionVarArgs, Match, register_graph_pattern

    def wherever(operator: Any) -> Any:
        # After the split into forward and backward: what is kept between them stays the input.
        return register_graph_pattern(CallFunctionVarArgs(operator), pass_dict=pass_patterns[1])  # type: ignore[arg-type]

    @wherever(torch.ops.torch_srelu.srelu.default)
    def _(match: Match, x: Node, *arguments: Any) -> None:
        *params, dim, _ = arguments
        if _suits(x.meta["val"]):
            match.replace_by_example(lambda *given: reference.srelu(*given, dim), [x, *params])  # type: ignore[call-arg]

    @wherever(torch.ops.torch_srelu.srelu_backward.default)
    def _(match: Match, grad: Node, x: Node, *arguments: Any) -> None:
        if _suits(x.meta["val"]) and _is_sum_of_two(grad):
            call = match.output_node()
            call.target = torch.ops.torch_srelu.srelu_backward_of_sum.default
            call.args = (*grad.args, x, *arguments)
            if "eager_input_vals" in call.meta:  # which layouts it gets: both parts that of the sum
                (whole, *others), named = call.meta["eager_input_vals"]
                call.meta["eager_input_vals"] = (whole, whole, *others), named


def _suits(x: Tensor) -> bool:
    """Not on a CPU, whose kernels are faster than what the compiler makes for it."""
    return x.is_cuda


def _is_sum_of_two(grad: Node) -> bool:
    """Whether a gradient is made of two of its own kind, for one user."""
    if grad.target is not torch.ops.aten.add.Tensor or grad.kwargs or len(grad.users) > 1:
        return False
    whole, parts = grad.meta["val"], [p.meta["val"] for p in grad.args if isinstance(p, Node)]
    alike = [p for p in parts if p.dtype == whole.dtype and p.shape == whole.shape]
    return len(alike) == 2
