"""One look at a batch for `quantile`: natively on the CPU, by Triton on CUDA, else in plain torch.

Numbers are compared by their `keys`: integers in the same order.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from . import backends
from .cpu import cpu_backend as cpu
from .layout import ChannelView
from .ordered_keys import KEYS, Interval, fold, to_keys
from .reference import compute_dtype

_SHORT_RUN = 32  # shorter runs of a channel are scanned as columns
_SHARE = 32768  # values: below this a thread costs more than it saves


class Seen:
    """What was seen so far of each channel; int64, as long as there are channels.

    Attributes:
        checksum: The sum of the keys; as many bits of it count as a key has.
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


class Counts:
    """Counts the keys in each bin of an interval."""

    def __init__(self, channels: int, bins: int, device: torch.device) -> None:
        self.counts = torch.zeros(channels, bins, dtype=torch.int64, device=device)

    def take(self, interval: Interval, channel: Tensor, key: Tensor) -> None:
        folded = fold(key, interval.gap[channel])
        bins = (folded >> interval.shift[channel]) - interval.first[channel]
        at = channel * self.counts.shape[1] + bins
        self.counts.view(-1).index_add_(0, at, torch.ones_like(at))


class Kept:
    """Writes down the keys in an interval, up to a capacity; ``number`` counts on beyond it."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.keys = torch.empty(capacity, dtype=torch.int64, device=device)
        self.channels = torch.empty(capacity, dtype=torch.int64, device=device)
        self.number = torch.zeros(1, dtype=torch.int64, device=device)

    def take(self, interval: Interval, channel: Tensor, key: Tensor) -> None:
        start = int(self.number)
        room = max(0, min(key.numel(), self.keys.numel() - start))
        self.keys[start : start + room] = key[:room]
        self.channels[start : start + room] = channel[:room]
        self.number += key.numel()


def scan(x: Tensor, view: ChannelView, interval: Interval, into: Counts | Kept, seen: Seen) -> None:
    """Adds the dense tensor ``x`` to what was ``seen``; keys in the interval go ``into``."""
    if backends.select(x) not in (cpu, None):
        from .triton import triton_scan  # late, as in `backends`

        triton_scan.scan(x, view, interval, into, seen)
        return
    x = strided(x, view).to(compute_dtype(x))
    native = _native() if backends.select(x) is cpu else None
    if native is not None:
        _scan_natively(native, x, interval, into, seen)
    else:
        _scan_plainly(x, interval, into, seen)


def strided(x: Tensor, view: ChannelView) -> Tensor:
    """The dense tensor ``x`` in memory order, as (outer, C, inner)."""
    return x.as_strided(view, (view.channels * view.inner, view.inner, 1), x.storage_offset())


def _scan_plainly(x: Tensor, interval: Interval, into: Counts | Kept, seen: Seen) -> None:
    keys = to_keys(x)
    lo, hi = (bound.to(keys.dtype).unsqueeze(1) for bound in (interval.lo, interval.hi))
    at = ((keys >= lo) & (keys <= hi)).nonzero(as_tuple=True)
    into.take(interval, at[1], keys[at].long())
    others = (0, 2)
    seen.add(
        keys.sum(others, dtype=keys.dtype).long(),
        (keys < lo).sum(others),
        keys.amin(others).long(),
        keys.amax(others).long(),
    )


@functools.cache
def _native() -> Callable[..., None] | None:
    """The compiled scan; None where there is none."""
    library = cpu._library()
    function = getattr(library, "srelu_look", None)
    if function is not None:
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        function.restype = None
        function.argtypes = [
            *[ctypes.c_int] * 2,
            *[pointer, size, size, size, size],
            *[pointer] * 9,
            *[pointer, size, pointer, pointer, pointer, size],
        ]
    return function


def _scan_natively(
    native: Callable[..., None], x: Tensor, interval: Interval, into: Counts | Kept, seen: Seen
) -> None:
    outer, channels, inner = x.shape
    per_channel = 1
    if inner < _SHORT_RUN:
        per_channel, inner = inner, 1
    columns, dtype = channels * per_channel, KEYS[x.dtype]
    threads = max(1, min(torch.get_num_threads(), x.numel() // _SHARE))
    bounds = [b.to(dtype).repeat_interleave(per_channel) for b in (interval.lo, interval.hi)]
    limits = torch.iinfo(dtype)
    checksum = torch.zeros(threads, columns, dtype=dtype)
    below = torch.zeros(threads, columns, dtype=torch.int64)
    smallest = torch.full((threads, columns), limits.max, dtype=dtype)
    largest = torch.full((threads, columns), limits.min, dtype=dtype)
    bins = (interval.gap, interval.shift, interval.first)
    tables = (*bounds, checksum, below, smallest, largest, *bins)
    counts = (into.counts.data_ptr(), into.counts.shape[1]) if isinstance(into, Counts) else (0, 0)
    kept = (into.keys, into.channels, into.number) if isinstance(into, Kept) else ()
    native(
        x.dtype == torch.float64,
        threads,
        *(x.data_ptr(), outer, columns, inner, per_channel),
        *(table.data_ptr() for table in tables),
        *counts,
        *([buffer.data_ptr() for buffer in kept] or [0, 0, 0]),
        kept[0].numel() if kept else 0,
    )
    split = (threads, channels, per_channel)
    seen.add(
        checksum.view(split).sum((0, 2), dtype=dtype).long(),
        below.view(split).sum((0, 2)),
        smallest.view(split).amin((0, 2)).long(),
        largest.view(split).amax((0, 2)).long(),
    )
