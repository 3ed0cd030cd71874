"""Convolutions in the form that runs fastest on the device at hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_srelu import SReLU, srelu

ALIGNED = 8  # bfloat16 numbers in the 16 bytes that tensor cores read at once


def convolve_and_activate(conv: nn.Conv2d, act: nn.Module, x: Tensor) -> Tensor:
    """``act(conv(x))``, with the bias added inside SReLU where that is faster.

    On a GPU, a convolution adds its bias in a pass of its own, and sums its gradient in another. A
    compiler fuses both with an activation that it can trace; SReLU's kernels take a bias.
    """
    # Not in evaluation, where hooks may read the activation's input.
    if not (act.training and x.is_cuda and isinstance(act, SReLU)):
        return act(convolve(conv, x))
    y = convolve(conv, x, add_bias=False)
    return srelu(y, *act.tensors(), act.dim, bias=conv.bias, frozen=act.frozen)


def convolve(conv: nn.Conv2d, x: Tensor, add_bias: bool = True) -> Tensor:
    """``conv(x)``, in compiled code as a product of matrices where that is faster.

    Args:
        conv: A convolution with a bias, its kernel, stride and padding the same in both directions.
        x: Its input (N, C, H, W).
        add_bias: Whether to add the bias.
    """
    if torch.compiler.is_compiling() and _faster_as_matmul(conv, x):
        y = conv_as_matmul(x, conv.weight, conv.stride[0], int(conv.padding[0]))
        assert conv.bias is not None
        return y + conv.bias.to(y.dtype)[:, None, None] if add_bias else y
    return conv(x) if add_bias else F.conv2d(x, conv.weight, None, conv.stride, conv.padding)


def _faster_as_matmul(conv: nn.Conv2d, x: Tensor) -> bool:
    """Whether tensor cores cannot take its channels, and compiled code of it is right."""
    pointwise = conv.kernel_size == conv.stride == (1, 1)
    odd = conv.in_channels < ALIGNED or (pointwise and conv.out_channels % ALIGNED > 0)
    # An image needs no gradient; compiled code of the gradient of windows would be wrong.
    return odd and (pointwise or not x.requires_grad)


def conv_as_matmul(x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """A convolution as one product of matrices padded with zeros.

    On a GPU, for numbers of channels that tensor cores cannot take as they are: cuDNN's
    convolution of 3 channels takes four to six times as long (docs/speed.md). To be compiled, which
    makes the windows in one pass. But not their gradient: for several threads of a CPU, torch 2.13
    compiles it into code that writes where it should not.

    Args:
        x: Input (N, C, H, W). Compiled, it must not need a gradient, unless K is 1.
        weight: (O, C, K, K).
        stride: Step from one window to the next.
        padding: Zeros on each side.

    Returns:
        (N, O, h, w), channels last.

    Example:
        >>> x, weight = torch.randn(2, 3, 4, 4).double(), torch.randn(5, 3, 3, 3).double()
        >>> torch.allclose(conv_as_matmul(x, weight), F.conv2d(x, weight))
        True
    """
    outputs, _, kernel, _ = weight.shape
    padded = F.pad(x, (padding,) * 4) if padding else x
    if kernel == stride == 1:
        windows = padded[..., None, None]
    else:
        windows = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)  # (N, C, h, w, K, K)
    images, _, height, width = windows.shape[:4]
    columns = windows.permute(0, 2, 3, 4, 5, 1).reshape(images * height * width, -1)
    matrix = weight.permute(0, 2, 3, 1).reshape(outputs, -1)
    missing = -matrix.shape[1] % ALIGNED
    columns = F.pad(columns, (0, missing))
    matrix = F.pad(matrix, (0, missing, 0, -outputs % ALIGNED))
    y = F.linear(columns, matrix)[:, :outputs].contiguous()
    return y.reshape(images, height, width, outputs).permute(0, 3, 1, 2)
