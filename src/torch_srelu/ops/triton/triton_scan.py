"""The scan of a batch on CUDA, host side: one launch reads the batch once, and waits for nothing.

The kernels are in `triton_scan_kernels`.
"""

from __future__ import annotations

import functools

import torch
import triton.language as tl
from torch import Tensor

from ..layout import ChannelView
from ..ordered_keys import KEYS, Interval
from ..scan import Counts, Kept, Seen
from . import triton_scan_kernels as kernels
from .triton_launch import Launch
from .triton_tiling import NUM_SMS, BlockShape, columns_tiling, grid, is_runs, runs_tiling


def scan(x: Tensor, view: ChannelView, interval: Interval, into: Counts | Kept, seen: Seen) -> None:
    """Looks at the dense tensor ``x``, in any dtype, as `scan.scan` does."""
    tables = (interval.lo, interval.hi, interval.gap, interval.shift, interval.first)
    sums = (seen.checksum, seen.below, seen.smallest, seen.largest)
    if isinstance(into, Kept):
        launch = _launch(view, x.dtype, into.keys.numel(), True)
        goal = (into.keys, into.channels, into.number)
    else:
        launch = _launch(view, x.dtype, into.counts.shape[1], False)
        goal = (into.counts, None, None)
    launch((x.get_device(),), x, *tables, *sums, *goal)


def scan_shape(view: ChannelView, dtype: torch.dtype) -> BlockShape:
    """The cut of a scan: small tiles, since each element has four running results."""
    tile = 256 if dtype == torch.float64 else 512
    width = tile if is_runs(view) else 64
    return BlockShape(tile, width, 4, vector=1, max_programs=8 * NUM_SMS)


@functools.lru_cache(maxsize=4096)
def _launch(view: ChannelView, dtype: torch.dtype, size: int, keep: bool) -> Launch:
    """``size``: bins of a channel, or how many keys there is room for."""
    shape = scan_shape(view, dtype)
    how = runs_tiling(view, shape) if is_runs(view) else columns_tiling(view, shape, tiles=False)
    wide = dtype == torch.float64
    meta = {
        "KEY": tl.int64 if wide else tl.int32,
        "LIMIT": torch.iinfo(KEYS[torch.float64 if wide else torch.float32]).max,
        "KEEP": keep,
        **how.meta,
    }
    kernel = kernels.scan_runs if is_runs(view) else kernels.scan_columns
    return Launch(kernel, grid(how), (*how.sizes, how.steps, how.splits, size), meta)
