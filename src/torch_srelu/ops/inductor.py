"""What torch.compile's own compiler sees of SReLU on a GPU: the forward pass in plain operators.

It fuses them with what comes before, such as batch normalisation and a residual sum; an operator
that it cannot see into reads and writes the tensor once more. The backward pass stays an operator:
the compiler would sum more slowly (docs/speed.md).
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch import Tensor
from torch.fx import Node

from . import reference


def teach(operator: Any) -> None:
    """Tells the compiler, once it is there, what the forward ``operator`` is made of.

    Called whenever the operator is traced, and so before it is compiled. The compiler is not
    imported for this: other backends of torch.compile do without.
    """
    if "torch._inductor.fx_passes.post_grad" in sys.modules:
        _teach(operator)


@functools.cache
def _teach(operator: Any) -> None:
    from torch._inductor.fx_passes.post_grad import pass_patterns
    from torch._inductor.pattern_matcher import CallFunctionVarArgs, Match, register_graph_pattern

    # After the split into forward and backward: what is kept for backward stays the input alone.
    found: Any = register_graph_pattern(CallFunctionVarArgs(operator), pass_dict=pass_patterns[1])  # type: ignore[arg-type]

    @found
    def _(match: Match, x: Node, *arguments: Any) -> None:
        *params, dim, _ = arguments
        if _suits(x.meta["val"]):
            match.replace_by_example(lambda *given: reference.srelu(*given, dim), [x, *params])  # type: ignore[call-arg]


def _suits(x: Tensor) -> bool:
    """Not on a CPU, whose kernels are faster than what the compiler makes for it."""
    return x.is_cuda
