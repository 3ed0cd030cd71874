"""The arguments of SReLU: the four parameters as one tuple, and what must fit together."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

DTYPES = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})


class Parameters(NamedTuple):
    """The parameters of a unit: 1-D tensors of one length, the number of channels or 1."""

    t_r: Tensor
    a_r: Tensor
    t_l: Tensor
    a_l: Tensor


class Needs(NamedTuple):
    """Which gradients a backward pass computes."""

    input: bool
    params: bool
    bias: bool = False


def check(x: Tensor, params: Parameters, dim: int, bias: Tensor | None = None) -> None:
    """Raises TypeError or ValueError, before anything is computed, if the arguments do not fit."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, got {type(x).__name__}")
    if x.is_nested:
        raise TypeError(
            "x is a nested tensor: pass the tensors it is made of instead. With layout "
            "torch.jagged that is x.values(), and "
            "torch.nested.nested_tensor_from_jagged(y, x.offsets()) makes a nested tensor of the "
            "result; otherwise each of x.unbind()"
        )
    if x.dtype not in DTYPES:
        raise TypeError(
            f"x must be float64, float32, bfloat16 or float16, got {x.dtype}; convert it first"
        )
    tensors = params if bias is None else (*params, bias)
    for name, p in zip((*Parameters._fields, "bias"), tensors, strict=False):
        if not isinstance(p, Tensor):
            raise TypeError(f"{name} must be a 1-D tensor, got {type(p).__name__}")
        if p.dtype not in DTYPES:
            raise TypeError(f"{name} must be a floating-point tensor, got {p.dtype}")
        if p.device != x.device:
            raise ValueError(f"{name} is on {p.device} but x is on {x.device}: move one of them")
    for name, p in zip(Parameters._fields, params, strict=True):
        if p.dim() != 1:
            raise ValueError(f"{name} must be 1-D, one value per channel, got {tuple(p.shape)}")
        if p.shape != params.t_r.shape:
            raise ValueError(
                f"{name} has {p.shape[0]} values but t_r has {params.t_r.shape[0]}: "
                "all four parameters must be equally long"
            )
    if not isinstance(dim, int):
        raise TypeError(f"dim must be an int, got {type(dim).__name__}")
    _check_dim(x, params.t_r.shape[0], dim)
    has_dim = -x.dim() <= dim < x.dim()
    if bias is not None and not (has_dim and bias.shape == (x.shape[dim],)):
        raise ValueError(
            f"bias must have one value for each channel in dim={dim} of x, whose shape is "
            f"{tuple(x.shape)}, got {tuple(bias.shape)}"
        )


def _check_dim(x: Tensor, channels: int, dim: int) -> None:
    rank = x.dim()
    if channels == 1:
        return  # one value for all channels: any rank, any dim
    if rank == 0:
        raise ValueError(
            f"x is a scalar, so it has no dim={dim} for {channels} channels; "
            "SReLU(1), parameters of length 1, takes it"
        )
    if not -rank <= dim < rank:
        raise ValueError(
            f"dim={dim} does not exist in x of shape {tuple(x.shape)}; "
            f"with {channels} channels, expected {-rank} <= dim < {rank}"
        )
    if x.shape[dim] != channels:
        raise ValueError(
            f"x has {x.shape[dim]} channels in dim={dim} (shape {tuple(x.shape)}) "
            f"but the parameters are for {channels}"
            + ("; for channels in the last dim, pass dim=-1" if x.shape[-1] == channels else "")
        )


def check_lengths(x: Tensor, per_channel: tuple[Tensor, ...], dim: int) -> None:
    """Raises ValueError if a kernel would read past the end of a parameter or the bias.

    For calls that `check` has not seen: operators called directly, and backward passes, before
    which ``p.data = ...`` may have replaced a tensor.
    """
    channels = per_channel[0].numel()
    has_dim = -x.dim() <= dim < x.dim()
    fits = channels == 1 or (has_dim and x.shape[dim] == channels)
    if not fits or any(p.shape != (channels,) for p in per_channel):
        shapes = ", ".join(str(tuple(p.shape)) for p in per_channel)
        expected = f"{x.shape[dim]} values each, or 1" if has_dim else "1 value each"
        raise ValueError(
            f"parameters of shapes {shapes} do not fit x {tuple(x.shape)}, dim={dim}: "
            f"expected {expected}"
        )


def check_gradient(grad: Tensor, x: Tensor) -> None:
    """Raises ValueError unless ``grad`` has the shape and dtype of ``x``."""
    if grad.shape != x.shape or grad.dtype != x.dtype:
        raise ValueError(
            f"grad is {grad.dtype} of shape {tuple(grad.shape)}, expected that of x: "
            f"{x.dtype}, {tuple(x.shape)}"
        )
