"""Key statistics of a batch on CUDA, host side: one launch, one read of the batch, no sync.

The kernels are in `triton_key_statistics_kernels`.
"""

from __future__ import annotations

import functools

import torch
import triton.language as tl
from torch import Tensor

from ..key_statistics import CollectedKeys, RunningStatistics
from ..layout import ChannelView
from ..ordered_keys import KEY_DTYPES
from . import triton_key_statistics_kernels as kernels
from .triton_launch import Launch
from .triton_tiling import NUM_SMS, BlockShape, columns_tiling, grid, is_runs, runs_tiling


def update(statistics: RunningStatistics, x: Tensor, view: ChannelView) -> None:
    """`RunningStatistics.update` with the dense tensor ``x``, in any dtype."""
    s, i, target = statistics, statistics.interval, statistics.target
    launch = _launch(view, x.dtype, target.size, isinstance(target, CollectedKeys))
    tables = (i.lo, i.hi, i.gap, i.shift, i.first, s.checksum, s.below, s.smallest, s.largest)
    launch((x.get_device(),), x, *tables, *target.buffers)


def tiling(view: ChannelView, dtype: torch.dtype) -> BlockShape:
    """The tiling: small blocks, since each element has four running results."""
    tile = 256 if dtype == torch.float64 else 512
    width = tile if is_runs(view) else 64
    return BlockShape(tile, width, 4, vector=1, max_programs=8 * NUM_SMS)


@functools.lru_cache(maxsize=4096)
def _launch(view: ChannelView, dtype: torch.dtype, size: int, collect: bool) -> Launch:
    """``size``: bins of a channel, or the capacity for collected keys."""
    shape = tiling(view, dtype)
    how = runs_tiling(view, shape) if is_runs(view) else columns_tiling(view, shape, tiles=False)
    wide = dtype == torch.float64
    meta = {
        "KEY": tl.int64 if wide else tl.int32,
        "LIMIT": torch.iinfo(KEY_DTYPES[torch.float64 if wide else torch.float32]).max,
        "COLLECT": collect,
        **how.meta,
    }
    kernel = kernels.run_statistics if is_runs(view) else kernels.column_statistics
    return Launch(kernel, grid(how), (*how.sizes, how.steps, how.splits, size), meta)
