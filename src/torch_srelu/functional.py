"""SReLU as a function."""

from __future__ import annotations

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from .ops import dispatch
from .ops.arguments import Parameters


def srelu(
    x: Tensor,
    t_r: Tensor,
    a_r: Tensor,
    t_l: Tensor,
    a_l: Tensor,
    dim: int = 1,
    *,
    bias: Tensor | None = None,
    frozen: bool = False,
) -> Tensor:
    """The S-shaped rectified linear unit, with parameters per channel.

        h(x) = x + (a_r - 1) * max(x - t_r, 0) + (1 - a_l) * max(t_l - x, 0)

    that is slope ``a_r`` right of ``t_r``, slope ``a_l`` left of ``t_l``, the identity between.

    Args:
        x: Input of any shape; float64, float32, bfloat16 or float16.
        t_r: Right threshold, one per channel: a 1-D tensor as long as ``x.shape[dim]``. Length 1
            means that all channels share it (then ``x`` may have any rank, 0 included).
        a_r: Slope beyond the right threshold, as long as ``t_r``.
        t_l: Left threshold, as long as ``t_r``.
        a_l: Slope beyond the left threshold, as long as ``t_r``.
        dim: The channel dimension of ``x``.
        bias: What a layer before would have added to ``x``, one value per channel: the result is
            that of ``x + bias``. On a GPU the same kernel adds it, and sums its gradient.
        frozen: The gradients of the four parameters are zeros, and cost nothing.

    Returns:
        A tensor with the shape, dtype and memory layout of ``x``.

    Example:
        >>> import torch
        >>> from torch_srelu.functional import srelu
        >>> x = torch.tensor([[-2.0, 0.5, 3.0]])
        >>> one = torch.ones(3)
        >>> srelu(x, t_r=one, a_r=0.5 * one, t_l=-one, a_l=0.1 * one)
        tensor([[-1.1000,  0.5000,  2.0000]])
    """
    tensors = (x, t_r, a_r, t_l, a_l) if bias is None else (x, t_r, a_r, t_l, a_l, bias)
    if has_torch_function(tensors):
        options = {"dim": dim, "bias": bias, "frozen": frozen}
        return handle_torch_function(srelu, tensors, *tensors[:5], **options)
    return dispatch.srelu(x, Parameters(t_r, a_r, t_l, a_l), dim, bias, frozen)
