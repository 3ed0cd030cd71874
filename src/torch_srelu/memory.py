"""A context in which outputs of SReLU are recomputed for the backward pass instead of kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from . import _torch_compat
from .ops import recompute

Given = ParamSpec("Given")
Result = TypeVar("Result")


class recompute_outputs:
    """Forward passes inside this context keep no output of SReLU for their backward pass.

    Where a layer would keep it, the backward pass computes it again from the unit's input, to the
    same bits, so that gradients do not change. A network of convolutions (or normalisations) and
    SReLU then needs the memory of the same network with in-place ReLU. Backward may be called
    inside or outside of the context.

    As without it, a tensor that was modified in place is a RuntimeError when the backward pass
    needs it, and the input and the parameters of a unit are needed where its output is. An output
    itself may be modified once a layer has used it: it is computed again as it was. Writes into
    memory that autograd does not see (``x.data.mul_()``, NumPy) are not seen here either.

    The context may be around a part of the network only: where outputs are small, there is little
    to save. What counts is where an output is made and used: a layer outside keeps what it needs.
    It is a decorator as well, for the ``forward`` of a class: a copy of an object whose own
    ``forward`` was replaced computes with the parameters of the original.

    An output that several layers keep is computed for each of them. Units right behind each other,
    with no layer between, compute all those before them as well: a long chain is better left alone.

    Compiled code decides for itself what it recomputes: there, this context has no effect. Nor has
    it in a checkpointed region or an inner ``saved_tensors_hooks``: torch asks the innermost hooks
    only. ``torch.func.grad`` and its relatives refuse all such hooks with an error.

    Example:
        >>> import torch
        >>> import torch_srelu as ts
        >>> net = torch.nn.Sequential(ts.SReLU(3), torch.nn.Conv2d(3, 8, 5))
        >>> with ts.recompute_outputs():
        ...     loss = net(torch.randn(2, 3, 8, 8)).sum()
        >>> loss.backward()
    """

    # Without state, so that a context may be entered again, and by several threads: torch knows
    # which hooks are in use. No generator, which would cost as much as a small layer.
    __slots__ = ()

    def __enter__(self) -> None:
        if not torch.compiler.is_compiling():
            _torch_compat.push_saved_tensors_hooks(recompute.pack, recompute.unpack)

    def __exit__(self, *error: object) -> None:
        if not torch.compiler.is_compiling():
            _torch_compat.pop_saved_tensors_hooks()

    def __call__(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        @functools.wraps(function)
        def recomputing(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            with recompute_outputs():  # not self, a context whose construction Dynamo did not trace
                return function(*args, **kwargs)

        return recomputing
