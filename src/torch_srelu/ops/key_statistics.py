"""Per-channel statistics of a batch for exact quantiles: checksum, range, histogram or the values.

Values are compared by their `ordered_keys`. Computed by native code on the CPU, by Triton on CUDA,
else in plain torch.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from . import backends
from .cpu import cpu_backend as cpu
from .layout import View
from .ordered_keys import KEY_DTYPES, KeyInterval, softshrink, to_keys
from .reference import compute_dtype

_SHORT_RUN = 32  # shorter runs of a channel are read as columns
_VALUES_PER_THREAD = 32768  # below this a thread costs more than it saves


class RunningStatistics:
    """Statistics of each channel over all batches so far; int64, of length ``channels``.

    Attributes:
        checksum: The sum of the keys, modulo the width of a key.
        below: How many keys are below the interval.
        smallest: The smallest key, ``limit`` before the first.
        largest: The largest key, ``-limit`` before the first.
    """

    def __init__(self, channels: int, limit: int, device: torch.device) -> None:
        self.checksum, self.below, self.smallest, self.largest = (
            torch.full((channels,), value, dtype=torch.int64, device=device)
            for value in (0, 0, limit, -limit)
        )

    def add(self, checksum: Tensor, below: Tensor, smallest: Tensor, largest: Tensor) -> None:
        """Adds a batch."""
        self.checksum += checksum
        self.below += below
        torch.minimum(self.smallest, smallest, out=self.smallest)
        torch.maximum(self.largest, largest, out=self.largest)


class KeyHistogram:
    """A histogram of the keys of each channel, over the bins of an interval.

    Attributes:
        counts: (channels, bins).
    """

    def __init__(self, channels: int, bins: int, device: torch.device) -> None:
        self.counts = torch.zeros(channels, bins, dtype=torch.int64, device=device)

    @property
    def size(self) -> int:
        """Number of bins."""
        return self.counts.shape[1]

    @property
    def buffers(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """What the kernels write to; those of `CollectedKeys` are three tensors."""
        return self.counts, None, None

    def add(self, interval: KeyInterval, channel: Tensor, key: Tensor) -> None:
        """Counts keys, each of the channel at the same place in ``channel``."""
        shrunk = softshrink(key, interval.gap[channel])
        at = channel * self.size + (shrunk >> interval.shift[channel]) - interval.first[channel]
        self.counts.view(-1).index_add_(0, at, torch.ones_like(at))


class CollectedKeys:
    """The keys in an interval and their channels, up to a capacity; ``count`` goes on beyond it."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.keys = torch.empty(capacity, dtype=torch.int64, device=device)
        self.channels = torch.empty(capacity, dtype=torch.int64, device=device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)

    @property
    def size(self) -> int:
        """The capacity."""
        return self.keys.numel()

    @property
    def buffers(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the kernels write to."""
        return self.keys, self.channels, self.count

    def add(self, interval: KeyInterval, channel: Tensor, key: Tensor) -> None:
        """Appends keys, as many as there is room for."""
        start = int(self.count)
        room = max(0, min(key.numel(), self.size - start))
        self.keys[start : start + room] = key[:room]
        self.channels[start : start + room] = channel[:room]
        self.count += key.numel()


def accumulate(
    x: Tensor,
    view: View,
    interval: KeyInterval,
    target: KeyHistogram | CollectedKeys,
    statistics: RunningStatistics,
) -> None:
    """Adds the dense tensor ``x`` to ``statistics``, and its keys in the interval to ``target``."""
    if backends.kernels(x) not in (cpu, None):
        from .triton import triton_key_statistics  # late, as in `backends`

        triton_key_statistics.accumulate(x, view, interval, target, statistics)
        return
    native = _native_function() if backends.kernels(x) is cpu else None
    x = channel_view(x, view).to(compute_dtype(x))
    if native is not None:
        _accumulate_native(native, x, interval, target, statistics)
    else:
        _accumulate_torch(x, interval, target, statistics)


def channel_view(x: Tensor, view: View) -> Tensor:
    """The dense tensor ``x`` in memory order, as (outer, C, inner)."""
    return x.as_strided(view, (view.channels * view.inner, view.inner, 1), x.storage_offset())


def _accumulate_torch(
    x: Tensor,
    interval: KeyInterval,
    target: KeyHistogram | CollectedKeys,
    statistics: RunningStatistics,
) -> None:
    keys = to_keys(x)
    lo, hi = (bound.to(keys.dtype).unsqueeze(1) for bound in (interval.lo, interval.hi))
    at = ((keys >= lo) & (keys <= hi)).nonzero(as_tuple=True)
    target.add(interval, at[1], keys[at].long())
    others = (0, 2)
    statistics.add(
        keys.sum(others, dtype=keys.dtype).long(),
        (keys < lo).sum(others),
        keys.amin(others).long(),
        keys.amax(others).long(),
    )


@functools.cache
def _native_function() -> Callable[..., None] | None:
    """The compiled function; None where there is none."""
    function = getattr(cpu._library(), "srelu_key_statistics", None)
    if function is not None:
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        function.restype = None
        function.argtypes = [*[ctypes.c_int] * 2, pointer, *[size] * 4, *[pointer] * 12, size]
    return function


def _accumulate_native(
    native: Callable[..., None],
    x: Tensor,
    interval: KeyInterval,
    target: KeyHistogram | CollectedKeys,
    statistics: RunningStatistics,
) -> None:
    outer, channels, inner = x.shape
    per_channel = 1
    if inner < _SHORT_RUN:
        per_channel, inner = inner, 1
    columns, dtype = channels * per_channel, KEY_DTYPES[x.dtype]
    threads = max(1, min(torch.get_num_threads(), x.numel() // _VALUES_PER_THREAD))
    bounds = [b.to(dtype).repeat_interleave(per_channel) for b in (interval.lo, interval.hi)]
    limits = torch.iinfo(dtype)
    checksum, smallest, largest = (
        torch.full((threads, columns), value, dtype=dtype) for value in (0, limits.max, limits.min)
    )
    below = torch.zeros(threads, columns, dtype=torch.int64)
    bins = (interval.gap, interval.shift, interval.first)
    tables = (*bounds, checksum, below, smallest, largest, *bins, *target.buffers)
    native(
        x.dtype == torch.float64,
        threads,
        *(x.data_ptr(), outer, columns, inner, per_channel),
        *(None if table is None else table.data_ptr() for table in tables),
        target.size,
    )
    split = (threads, channels, per_channel)
    statistics.add(
        checksum.view(split).sum((0, 2), dtype=dtype).long(),
        below.view(split).sum((0, 2)),
        smallest.view(split).amin((0, 2)).long(),
        largest.view(split).amax((0, 2)).long(),
    )
