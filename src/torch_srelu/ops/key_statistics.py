"""Per-channel statistics of a batch for exact quantiles: checksum, range, histogram or the values.

Values are compared by their `ordered_keys`. Computed by native code on the CPU, by Triton on CUDA,
else in plain torch.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from . import backends
from .cpu import cpu_backend as cpu
from .layout import ChannelView
from .ordered_keys import KEY_DTYPES, KeyInterval, softshrink, to_keys
from .reference import compute_dtype

_SHORT_RUN = 32  # shorter runs of a channel are read as columns
_VALUES_PER_THREAD = 32768  # below this a thread costs more than it saves


class KeyHistogram:
    """A histogram of the keys of each channel, over the bins of an interval.

    Attributes:
        counts: (channels, bins).
        size: The number of bins.
        buffers: What the kernels write to; those of `CollectedKeys` are three tensors.
    """

    def __init__(self, channels: int, bins: int, device: torch.device) -> None:
        self.counts = torch.zeros(channels, bins, dtype=torch.int64, device=device)
        self.size, self.buffers = bins, (self.counts, None, None)

    def add(self, interval: KeyInterval, channel: Tensor, key: Tensor) -> None:
        """Counts keys, each of the channel at the same place in ``channel``."""
        shrunk = softshrink(key, interval.gap[channel])
        at = channel * self.size + (shrunk >> interval.shift[channel]) - interval.first[channel]
        self.counts.view(-1).index_add_(0, at, torch.ones_like(at))


class CollectedKeys:
    """The keys in an interval, with their channels.

    Attributes:
        size: How many there is room for.
        count: How many there were, also beyond ``size``.
        buffers: What the kernels write to.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.keys = torch.empty(size, dtype=torch.int64, device=device)
        self.channels = torch.empty(size, dtype=torch.int64, device=device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.size, self.buffers = size, (self.keys, self.channels, self.count)

    def add(self, interval: KeyInterval, channel: Tensor, key: Tensor) -> None:
        """Appends keys, as many as there is room for."""
        start = int(self.count)
        room = max(0, min(key.numel(), self.size - start))
        self.keys[start : start + room] = key[:room]
        self.channels[start : start + room] = channel[:room]
        self.count += key.numel()


class RunningStatistics:
    """Statistics of each channel over all batches so far; int64 tensors, one entry a channel.

    Args:
        interval: An interval of keys for each channel.
        target: Gets the keys in the interval.
        limit: The largest magnitude of a key.

    Attributes:
        checksum: The sum of the keys, modulo the width of a key.
        below: How many keys are below the interval.
        smallest: The smallest key, ``limit`` before the first.
        largest: The largest key, ``-limit`` before the first.
    """

    def __init__(
        self, interval: KeyInterval, target: KeyHistogram | CollectedKeys, limit: int
    ) -> None:
        self.interval, self.target = interval, target
        self.checksum, self.below, self.smallest, self.largest = (
            torch.full_like(interval.lo, value) for value in (0, 0, limit, -limit)
        )

    def update(self, x: Tensor, view: ChannelView) -> None:
        """Adds a batch, the dense tensor ``x``."""
        if backends.select(x) not in (cpu, None):
            from .triton import triton_key_statistics  # late, as in `backends`

            triton_key_statistics.update(self, x, view)
            return
        native = backends.select(x) is cpu and _native_function() is not None
        compute = _native_statistics if native else _torch_statistics
        x = channel_view(x, view).to(compute_dtype(x))
        checksum, below, smallest, largest = compute(x, self.interval, self.target)
        self.checksum += checksum
        self.below += below
        torch.minimum(self.smallest, smallest, out=self.smallest)
        torch.maximum(self.largest, largest, out=self.largest)


def channel_view(x: Tensor, view: ChannelView) -> Tensor:
    """The dense tensor ``x`` in memory order, as (outer, C, inner)."""
    return x.as_strided(view, (view.channels * view.inner, view.inner, 1), x.storage_offset())


def _torch_statistics(
    x: Tensor, interval: KeyInterval, target: KeyHistogram | CollectedKeys
) -> Iterable[Tensor]:
    keys = to_keys(x)
    lo, hi = (bound.to(keys.dtype).unsqueeze(1) for bound in (interval.lo, interval.hi))
    at = ((keys >= lo) & (keys <= hi)).nonzero(as_tuple=True)
    target.add(interval, at[1], keys[at].long())
    return _reduced(keys, keys < lo, keys, keys)


@functools.cache
def _native_function() -> Callable[..., None] | None:
    """The compiled function; None where there is none."""
    function = getattr(cpu._library(), "srelu_key_statistics", None)
    if function is not None:
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        function.restype = None
        function.argtypes = [*[ctypes.c_int] * 2, pointer, *[size] * 4, *[pointer] * 12, size]
    return function


def _native_statistics(
    x: Tensor, interval: KeyInterval, target: KeyHistogram | CollectedKeys
) -> Iterable[Tensor]:
    native = _native_function()
    assert native is not None
    outer, channels, inner = x.shape
    per_channel = 1
    if inner < _SHORT_RUN:
        per_channel, inner = inner, 1
    columns, dtype = channels * per_channel, KEY_DTYPES[x.dtype]
    threads = max(1, min(torch.get_num_threads(), x.numel() // _VALUES_PER_THREAD))
    limits = torch.iinfo(dtype)
    bounds = [b.to(dtype).repeat_interleave(per_channel) for b in (interval.lo, interval.hi)]
    # Of each thread.
    values = {"checksum": 0, "below": 0, "smallest": limits.max, "largest": limits.min}
    results = [
        torch.full((threads, columns), value, dtype=torch.int64 if name == "below" else dtype)
        for name, value in values.items()
    ]
    bins = (interval.gap, interval.shift, interval.first)
    native(
        x.dtype == torch.float64,
        threads,
        *(x.data_ptr(), outer, columns, inner, per_channel),
        *(t if t is None else t.data_ptr() for t in (*bounds, *results, *bins, *target.buffers)),
        target.size,
    )
    return _reduced(*(result.view(threads, channels, per_channel) for result in results))


def _reduced(checksum: Tensor, below: Tensor, smallest: Tensor, largest: Tensor) -> list[Tensor]:
    """The statistics of each channel from such of (outer, C, inner)."""
    others = (0, 2)
    return [
        checksum.sum(others, dtype=checksum.dtype).long(),
        below.sum(others),
        smallest.amin(others).long(),
        largest.amax(others).long(),
    ]
