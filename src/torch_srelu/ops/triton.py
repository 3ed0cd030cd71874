"""The CUDA execution: Triton kernels, forward and a fused backward.

Tensors come as (outer, C, inner) in memory order (`layout.View`). Two shapes of kernel:

* runs: a channel's values lie together (NCHW with feature maps of some size), so its parameters are
  four scalars of the program;
* columns: the channel changes with every few elements (channels_last, (N, C), tiny feature maps).
  Memory is (outer, C * inner); parameters are loaded once for a block of columns and used for many
  rows.

The backward writes the input gradient and, in the same pass, sums four numbers for every channel:
g and g (x - t) over the right and over the left tail. Each program keeps its sums in registers and
writes one partial result; a second, small kernel adds these in a fixed order. No atomics: the same
input gives the same bits.

Slow where: runs whose length is no multiple of 16 cannot be read in wide vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from .layout import View

FORWARD_TILE, FORWARD_WARPS = 2048, 4  # elements of one program, and the warps that share them
BACKWARD_TILE, BACKWARD_WARPS = 2048, 4  # likewise, for one step of a program's loop
BACKWARD_PROGRAMS = 132 * 16  # at most so many in all: each leaves partial sums behind
COLUMN_WIDTH = 128  # a block of columns: wide enough to coalesce, narrow enough to waste little
SHORT_RUN = 256  # shorter runs, and those that cannot be read in wide vectors, are columns


@triton.jit
def _slope(right, left, a_r, a_l):
    return tl.where(left, tl.where(right, a_l + (a_r - 1), a_l), tl.where(right, a_r, 1.0))


@triton.jit
def _value(x, t_r, a_r, t_l, a_l):
    right, left = x >= t_r, x <= t_l
    i_r, i_l = t_r * (1 - a_r), t_l * (1 - a_l)
    slope = _slope(right, left, a_r, a_l)
    intercept = tl.where(left, tl.where(right, i_r + i_l, i_l), tl.where(right, i_r, 0.0))
    return tl.where(slope == 0, intercept, slope * x + intercept)  # flat at infinity too


@triton.jit
def _sums(g, x, t_r, t_l, right0, right1, left0, left1):
    right, left = x >= t_r, x <= t_l
    right0 += tl.where(right, g, 0.0)
    right1 += tl.where(right, g * (x - t_r), 0.0)
    left0 += tl.where(left, g, 0.0)
    left1 += tl.where(left, g * (x - t_l), 0.0)
    return right0, right1, left0, left1


@triton.jit
def _forward_runs(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, channels, inner, segments,
    COMPUTE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    run, segment = pid // segments, pid % segments
    c = run % channels
    t_r, a_r = tl.load(t_r_ptr + c).to(COMPUTE), tl.load(a_r_ptr + c).to(COMPUTE)
    t_l, a_l = tl.load(t_l_ptr + c).to(COMPUTE), tl.load(a_l_ptr + c).to(COMPUTE)
    start = run.to(tl.int64) * inner
    k = segment.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = k < inner
    x = tl.load(x_ptr + start + k, mask=mask)
    y = _value(x.to(COMPUTE), t_r, a_r, t_l, a_l)
    tl.store(y_ptr + start + k, y.to(x.dtype), mask=mask)


@triton.jit
def _forward_columns(
    x_ptr, y_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr, rows, columns, inner, column_blocks,
    COMPUTE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    k = (pid % column_blocks) * COLUMNS + tl.arange(0, COLUMNS)
    r = (pid // column_blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_row = k < columns
    c = k // inner
    t_r = tl.load(t_r_ptr + c, mask=in_row, other=0).to(COMPUTE)[None, :]
    a_r = tl.load(a_r_ptr + c, mask=in_row, other=0).to(COMPUTE)[None, :]
    t_l = tl.load(t_l_ptr + c, mask=in_row, other=0).to(COMPUTE)[None, :]
    a_l = tl.load(a_l_ptr + c, mask=in_row, other=0).to(COMPUTE)[None, :]
    at = r[:, None] * columns + k[None, :]
    mask = (r < rows)[:, None] & in_row[None, :]
    x = tl.load(x_ptr + at, mask=mask)
    y = _value(x.to(COMPUTE), t_r, a_r, t_l, a_l)
    tl.store(y_ptr + at, y.to(x.dtype), mask=mask)


@triton.jit
def _backward_runs(
    g_ptr, x_ptr, gx_ptr, partial_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr,
    outer, channels, inner, segments, splits,
    INPUT: tl.constexpr, PARAMS: tl.constexpr, COMPUTE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    c, split = pid % channels, pid // channels
    t_r, a_r = tl.load(t_r_ptr + c).to(COMPUTE), tl.load(a_r_ptr + c).to(COMPUTE)
    t_l, a_l = tl.load(t_l_ptr + c).to(COMPUTE), tl.load(a_l_ptr + c).to(COMPUTE)
    zeros = tl.zeros((BLOCK,), dtype=COMPUTE)
    right0, right1, left0, left1 = zeros, zeros, zeros, zeros
    for item in range(split, outer * segments, splits):
        run = (item // segments).to(tl.int64) * channels + c
        k = (item % segments).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        at = run * inner + k
        mask = k < inner
        # g = 0 outside, so that nothing is added there, whatever x holds
        g_raw = tl.load(g_ptr + at, mask=mask, other=0)
        x_raw = tl.load(x_ptr + at, mask=mask, other=0)
        g, x = g_raw.to(COMPUTE), x_raw.to(COMPUTE)
        if INPUT:
            gx = g * _slope(x >= t_r, x <= t_l, a_r, a_l)
            tl.store(gx_ptr + at, gx.to(x_raw.dtype), mask=mask)
        if PARAMS:
            right0, right1, left0, left1 = _sums(g, x, t_r, t_l, right0, right1, left0, left1)
    if PARAMS:
        plane = splits * channels  # partial: (4, splits, channels)
        out = partial_ptr + split * channels + c
        tl.store(out, tl.sum(right0, 0))
        tl.store(out + plane, tl.sum(right1, 0))
        tl.store(out + 2 * plane, tl.sum(left0, 0))
        tl.store(out + 3 * plane, tl.sum(left1, 0))


@triton.jit
def _backward_columns(
    g_ptr, x_ptr, gx_ptr, partial_ptr, t_r_ptr, a_r_ptr, t_l_ptr, a_l_ptr,
    rows, columns, inner, column_blocks, splits,
    INPUT: tl.constexpr, PARAMS: tl.constexpr, COMPUTE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    block, split = pid % column_blocks, pid // column_blocks
    k = block * COLUMNS + tl.arange(0, COLUMNS)
    in_row = k < columns
    c = k // inner
    t_r = tl.load(t_r_ptr + c, mask=in_row, other=0).to(COMPUTE)[None, :]
    a_r = tl.load(a_r_ptr + c, mask=in_row, other=0).to(COMPUTE)[None, :]
    t_l = tl.load(t_l_ptr + c, mask=in_row, other=0).to(COMPUTE)[None, :]
    a_l = tl.load(a_l_ptr + c, mask=in_row, other=0).to(COMPUTE)[None, :]
    zeros = tl.zeros((ROWS, COLUMNS), dtype=COMPUTE)
    right0, right1, left0, left1 = zeros, zeros, zeros, zeros
    for first in range(split * ROWS, rows, splits * ROWS):
        r = first + tl.arange(0, ROWS).to(tl.int64)
        at = r[:, None] * columns + k[None, :]
        mask = (r < rows)[:, None] & in_row[None, :]
        g_raw = tl.load(g_ptr + at, mask=mask, other=0)
        x_raw = tl.load(x_ptr + at, mask=mask, other=0)
        g, x = g_raw.to(COMPUTE), x_raw.to(COMPUTE)
        if INPUT:
            gx = g * _slope(x >= t_r, x <= t_l, a_r, a_l)
            tl.store(gx_ptr + at, gx.to(x_raw.dtype), mask=mask)
        if PARAMS:
            right0, right1, left0, left1 = _sums(g, x, t_r, t_l, right0, right1, left0, left1)
    if PARAMS:
        plane = splits * columns  # partial: (4, splits, columns)
        out = partial_ptr + split * columns + k
        tl.store(out, tl.sum(right0, 0), mask=in_row)
        tl.store(out + plane, tl.sum(right1, 0), mask=in_row)
        tl.store(out + 2 * plane, tl.sum(left0, 0), mask=in_row)
        tl.store(out + 3 * plane, tl.sum(left1, 0), mask=in_row)


@triton.jit
def _finish(
    partial_ptr, a_r_ptr, a_l_ptr, gt_r_ptr, ga_r_ptr, gt_l_ptr, ga_l_ptr,
    splits, channels, inner,
    COMPUTE: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Adds the partial sums, (4, splits, channels * inner), over splits and inner."""
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    which = tl.program_id(1)
    real = c < channels
    total = tl.zeros((PARTS, CHANNELS), dtype=COMPUTE)
    base = partial_ptr + which.to(tl.int64) * splits * channels * inner
    for first in range(0, splits * inner, PARTS):
        part = first + tl.arange(0, PARTS)
        at = (
            (part // inner)[:, None] * channels * inner
            + c[None, :] * inner
            + (part % inner)[:, None]
        )
        mask = (part < splits * inner)[:, None] & real[None, :]
        total += tl.load(base + at, mask=mask, other=0)
    grad = tl.sum(total, 0)
    if which == 0:
        grad *= 1 - tl.load(a_r_ptr + c, mask=real, other=0).to(COMPUTE)
        tl.store(gt_r_ptr + c, grad.to(gt_r_ptr.dtype.element_ty), mask=real)
    elif which == 1:
        tl.store(ga_r_ptr + c, grad.to(ga_r_ptr.dtype.element_ty), mask=real)
    elif which == 2:
        grad *= 1 - tl.load(a_l_ptr + c, mask=real, other=0).to(COMPUTE)
        tl.store(gt_l_ptr + c, grad.to(gt_l_ptr.dtype.element_ty), mask=real)
    else:
        tl.store(ga_l_ptr + c, grad.to(ga_l_ptr.dtype.element_ty), mask=real)


def _is_runs(view: View) -> bool:
    return view.channels == 1 or (view.inner >= SHORT_RUN and view.inner % 16 == 0)


def _compute(x: Tensor) -> tl.dtype:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _column_tile(columns: int, elements: int) -> tuple[int, int]:
    """(rows, columns) of a tile."""
    width = min(COLUMN_WIDTH, _power_of_two(columns))
    return elements // width, width


def forward(x: Tensor, params: Sequence[Tensor], view: View) -> Tensor:
    """SReLU of the dense tensor ``x``."""
    y = torch.empty_like(x)
    outer, channels, inner = view
    params = [p.contiguous() for p in params]
    with _on_device(x):
        if _is_runs(view):
            block = min(FORWARD_TILE, _power_of_two(inner))
            segments = triton.cdiv(inner, block)
            _forward_runs[(outer * channels * segments,)](
                x, y, *params, channels, inner, segments,
                COMPUTE=_compute(x), BLOCK=block, num_warps=FORWARD_WARPS,
            )  # fmt: skip
        else:
            columns = channels * inner
            rows, width = _column_tile(columns, FORWARD_TILE)
            blocks = triton.cdiv(columns, width)
            _forward_columns[(blocks * triton.cdiv(outer, rows),)](
                x, y, *params, outer, columns, inner, blocks,
                COMPUTE=_compute(x), ROWS=rows, COLUMNS=width, num_warps=FORWARD_WARPS,
            )  # fmt: skip
    return y


def backward(
    grad: Tensor,
    x: Tensor,
    params: Sequence[Tensor],
    view: View,
    need_input: bool,
    need_params: bool,
) -> tuple[Tensor | None, list[Tensor] | None]:
    """Gradients for the dense ``x`` (``grad`` has its layout) and for the four parameters."""
    outer, channels, inner = view
    params = [p.contiguous() for p in params]
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    grad_x = torch.empty_like(x) if need_input else None
    flags = {"INPUT": need_input, "PARAMS": need_params, "COMPUTE": _compute(x)}
    with _on_device(x):
        if _is_runs(view):
            block = min(BACKWARD_TILE, _power_of_two(inner))
            segments, summed = triton.cdiv(inner, block), 1
            splits = min(outer * segments, max(1, BACKWARD_PROGRAMS // channels))
            partial = x.new_empty((4, splits, channels) if need_params else 0, dtype=compute)
            _backward_runs[(channels * splits,)](
                grad, x, grad_x, partial, *params, outer, channels, inner, segments, splits,
                **flags, BLOCK=block, num_warps=BACKWARD_WARPS,
            )  # fmt: skip
        else:
            columns, summed = channels * inner, inner
            rows, width = _column_tile(columns, BACKWARD_TILE)
            blocks = triton.cdiv(columns, width)
            splits = min(triton.cdiv(outer, rows), max(1, BACKWARD_PROGRAMS // blocks))
            partial = x.new_empty((4, splits, columns) if need_params else 0, dtype=compute)
            _backward_columns[(blocks * splits,)](
                grad, x, grad_x, partial, *params, outer, columns, inner, blocks, splits,
                **flags, ROWS=rows, COLUMNS=width, num_warps=BACKWARD_WARPS,
            )  # fmt: skip
        if not need_params:
            return grad_x, None
        grads = [torch.empty_like(p) for p in params]
        wide = min(32, _power_of_two(channels))
        parts = min(1024 // wide, _power_of_two(splits * summed))
        _finish[(triton.cdiv(channels, wide), 4)](
            partial, params[1], params[3], *grads, splits, channels, summed,
            COMPUTE=_compute(x), PARTS=parts, CHANNELS=wide,
        )  # fmt: skip
    return grad_x, grads


def _on_device(x: Tensor):
    """Triton launches on the current device, which need not be the tensor's."""
    return torch.cuda.device(x.device if x.is_cuda else -1)  # -1: the interpreter, nothing to do
