"""Exact order statistics of streams: per channel, in few passes, mergeable across processes."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor
from torch import distributed as dist

from .._text import counted
from ..ops import layout
from ..ops.ordered_keys import (
    EMPTY_BITS,
    KEYS,
    Interval,
    finest_shift,
    fold,
    from_keys,
    to_keys,
    without_empty_ends,
)
from ..ops.reference import compute_dtype
from ..ops.scan import Counts, Kept, Seen, scan, strided

_SAMPLE = 2048  # values of the probe in each channel
_LARGEST = int(to_keys(torch.tensor(torch.finfo(torch.float64).max, dtype=torch.float64)))
_OCTAVES = 16  # below the largest value looked for: what is smaller is hardly ever the answer
_MARGIN = 0.08  # on both sides of the quantile of the probe, as a share of all values


class NotFiniteError(ValueError):
    """A stream has values that are no numbers."""


class EmptyStreamError(ValueError):
    """There was nothing to find a quantile of."""


class ChangedStreamError(RuntimeError):
    """A later pass saw other values than the first."""


class QuantileSearch:
    """Finds an exact quantile of every channel of a stream that can be read more than once.

    The quantile q of n values is the one of rank ceil(q n), counted from the smallest: one of the
    values, the same as by sorting, however the stream is cut into batches or split over processes.
    -0.0 and 0.0 are one value. A few values (`probe`) tell where to look. The first pass over the
    stream counts how many lie in each of ``bins`` small steps there and below them; each later
    pass does so inside the one step that holds the rank, or writes its values down if they are
    few. Numbers of 16 bits are so few that one pass is the rule, for others it is two or three.
    Between passes, the number of values and a checksum are compared: a stream that did not repeat
    itself is an error (`ChangedStreamError`).

    Memory: at most 8 bytes times ``bins`` for every channel, besides a few numbers.

    Args:
        channels: Number of channels; 1 treats all values of a batch as one channel.
        quantile: Which to find, in (0, 1].
        bins: Steps that a pass tells apart at most, at least 2.
        device: Where the batches are.
        group: The processes that share the stream; None for one process alone. Every process must
            call `start` and `finish_pass` equally often, also where it has no batch.

    Example:
        >>> import torch
        >>> from torch_srelu.adaptive.quantile_search import QuantileSearch
        >>> batches = [torch.arange(12.0).reshape(4, 3), torch.arange(18.0).reshape(6, 3)]
        >>> search = QuantileSearch(channels=3, quantile=0.9)
        >>> search.probe(batches[0])
        >>> search.start()
        >>> while not search.done:
        ...     for batch in batches:
        ...         search.update(batch)
        ...     search.finish_pass()
        >>> search.values
        tensor([12., 13., 14.])
    """

    def __init__(
        self,
        channels: int,
        quantile: float,
        *,
        bins: int = 2048,
        device: torch.device | str = "cpu",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if not 0 < quantile <= 1:
            raise ValueError(f"a quantile must be in (0, 1], got {quantile}")
        # As written, not as stored: 0.9 * 10 is 9, but the float nearest 0.9 is a little more.
        self._quantile = Fraction(str(float(quantile)))
        self._bins, self._device, self._group = bins, torch.device(device), group
        self._channels = channels
        # An empty interval, reversed, so that the smallest `lo` and largest `hi` win.
        self._lo = self._filled((channels,), torch.iinfo(torch.int64).max)
        self._hi = self._filled((channels,), torch.iinfo(torch.int64).min)
        self._gap = self._filled((channels,), 0)  # of `Interval`
        self._below = self._filled((channels,), 0)  # values known to lie below `lo`
        self._inside = self._filled((channels,), 0)  # and in the interval
        self._dtype = torch.float32
        self._empty_bits = max(EMPTY_BITS.values())  # of all keys: less with every wider dtype
        self._fingerprint: tuple[int, Tensor] | None = None
        self.passes = 0

    # ---- what it found ----

    @property
    def done(self) -> bool:
        """Whether the quantile of every channel is known."""
        return self.passes > 0 and bool((self._lo == self._hi).all())

    @property
    def values(self) -> Tensor:
        """The quantile of each channel, in float32, or float64 if the stream is."""
        if not self.done:
            raise RuntimeError("the quantiles are not known yet: another pass is needed")
        return from_keys(self._lo, self._dtype)

    @property
    def below(self) -> Tensor:
        """How many values of each channel are smaller than its quantile."""
        return self._below

    @property
    def count(self) -> int:
        """The number of values in each channel."""
        return self._fingerprint[0] if self._fingerprint else 0

    @property
    def largest(self) -> Tensor:
        """The largest value of each channel."""
        return from_keys(self._largest, self._dtype)

    # ---- the stream ----

    def probe(self, x: Tensor, dim: int = 1) -> None:
        """Takes a few values to guess from. A bad guess costs a pass, nothing else."""
        x, view = self._dense(x, dim)
        if x.dtype == torch.float64:
            self._dtype = torch.float64
        self._note_empty_bits(x)
        if x.numel() == 0:
            return
        inner, total = view.inner, view.outer * view.inner
        # Steps of the golden section: equal steps would take the same columns of every image.
        at = torch.arange(min(_SAMPLE, total), device=x.device) * (int(total * 0.618) | 1) % total
        sample = strided(x, view)[at // inner, :, at % inner]
        sample = sample.to(compute_dtype(x)).nan_to_num().sort(0).values  # (sample, C)
        last, q = len(sample) - 1, float(self._quantile)
        low = max(0, math.floor((q - _MARGIN) * last))
        high = min(last, math.ceil((q + _MARGIN) * last))
        # Keys of float64 until `start`, where the processes agree on a dtype.
        self._lo = torch.minimum(self._lo, to_keys(sample[low].double()))
        self._hi = torch.maximum(self._hi, to_keys(sample[high].double()))

    def start(self) -> None:
        """Ends the probe: all processes agree where to look."""
        wide = self._filled((1,), int(self._dtype == torch.float64))
        self._reduce(wide, "MAX")
        self._reduce(self._lo, "MIN")
        self._reduce(self._hi, "MAX")
        self._dtype = torch.float64 if int(wide) else torch.float32
        probed = bool((self._lo <= self._hi).all())
        if not probed:  # search everywhere
            self._dtype = torch.float64
            self._hi = self._filled((self._channels,), _LARGEST)
            self._lo = -self._hi
        self._lo, self._hi = (
            to_keys(from_keys(keys, torch.float64).to(self._dtype)).long()
            for keys in (self._lo, self._hi)
        )
        if probed:
            octave = round(1 / torch.finfo(self._dtype).eps)  # in keys
            largest = torch.maximum(self._lo.abs(), self._hi.abs())
            self._gap = (largest - _OCTAVES * octave).clamp(min=0)
        self._agree_on_empty_bits()
        self._begin_pass()

    def update(self, x: Tensor, dim: int = 1) -> None:
        """Reads a batch, whose channels are in ``dim``."""
        x, view = self._dense(x, dim)
        if self._dtype == torch.float64:
            x = x.double()
        elif x.dtype == torch.float64:
            raise TypeError(
                "the stream began with narrower numbers and now holds float64: convert all of it "
                "to one dtype"
            )
        self._note_empty_bits(x)
        self._count += view.outer * view.inner
        if x.numel():
            scan(x, view, self._interval, self._into, self._seen)

    def finish_pass(self) -> None:
        """Ends a pass over the stream: merges what all processes saw and narrows the search."""
        count, seen = self._filled((1,), self._count), self._seen
        for table in (count, seen.checksum, seen.below):
            self._reduce(table, "SUM")
        if int(count) == 0 and self.passes == 0:
            raise EmptyStreamError("no values were seen")
        self._check_same(int(count), seen.checksum)
        if self.passes == 0:
            self._smallest, self._largest = seen.smallest, seen.largest
            self._reduce(self._smallest, "MIN")
            self._reduce(self._largest, "MAX")
            self._check_finite()
        self._agree_on_empty_bits()
        rank = math.ceil(self._quantile * self.count)
        if isinstance(self._into, Kept):
            self._select(rank, *self._gather(self._into))
        else:
            self._reduce(self._into.counts, "SUM")
            self._narrow(rank, self._into.counts)
        self.passes += 1
        self._gap = torch.zeros_like(self._gap)
        self._begin_pass()

    # ---- the search ----

    def _begin_pass(self) -> None:
        limits = torch.iinfo(KEYS[self._dtype])
        self._count = 0
        self._seen = Seen(self._channels, limits.max, self._device)
        # What the probe says is a guess, even where it leaves one key.
        self._open = (self._lo < self._hi) | (self.passes == 0)
        lo, hi = (fold(keys, self._gap) for keys in (self._lo, self._hi))
        shift = finest_shift(lo, hi, self._bins, self._empty_bits)
        self._interval = Interval(
            torch.where(self._open, self._lo, limits.max),
            torch.where(self._open, self._hi, limits.min),
            self._gap,
            shift,
        )
        inside = int(torch.where(self._open, self._inside, 0).sum())
        # A written-down value takes two numbers, a bin one.
        if self.passes > 0 and 2 * inside <= self._bins * self._channels:
            self._into = Kept(inside, self._device)
        else:
            bins = int(((hi >> shift) - (lo >> shift)).max()) + 1
            self._into = Counts(self._channels, bins, self._device)

    def _narrow(self, rank: int, counts: Tensor) -> None:
        """From the counts of the bins to the bin that holds the rank, or to what lies outside."""
        lo, hi = self._lo, self._hi
        under = self._seen.below if self.passes == 0 else self._below
        # Values up to the end of each bin; in place, for this is the largest table there is.
        total = torch.cumsum(counts, 1, out=counts).add_(under.unsqueeze(1))
        bins = (total < rank).sum(1).clamp(max=counts.shape[1] - 1)
        upto = total.gather(1, bins.unsqueeze(1)).squeeze(1)
        before = total.gather(1, (bins - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        held = upto - torch.where(bins > 0, before, under)
        start, end = self._interval.ends(bins)
        new = [torch.maximum(lo, start), torch.minimum(hi, end), upto - held, held]
        if self.passes == 0:  # the guess may have missed
            zero, last = torch.zeros_like(lo), total[:, -1]
            self._replace(new, rank <= under, [self._smallest, lo - 1, zero, under])
            self._replace(new, rank > last, [hi + 1, self._largest, last, self.count - last])
        new[:2] = without_empty_ends(new[0], new[1], self._empty_bits)
        old = [lo, hi, self._below, self._inside]
        self._replace(old, self._open, new)
        self._lo, self._hi, self._below, self._inside = old

    @staticmethod
    def _replace(columns: list[Tensor], where: Tensor, by: list[Tensor]) -> None:
        columns[:] = [torch.where(where, b, c) for b, c in zip(by, columns, strict=True)]

    def _select(self, rank: int, keys: Tensor, channels: Tensor) -> None:
        """From all values of the intervals, written down, to the one of the rank."""
        keys, order = keys.sort()
        channels, order = channels[order].sort(stable=True)
        keys = keys[order]
        todo = self._open.nonzero().squeeze(1)
        held = self._inside[todo]
        if len(keys) != int(held.sum()):
            raise ChangedStreamError(f"pass {self.passes + 1} saw other values than the first")
        answer = keys[held.cumsum(0) - held + rank - 1 - self._below[todo]]
        self._lo[todo] = self._hi[todo] = answer
        smaller = keys < self._lo[channels]
        self._below.index_add_(0, channels, smaller.long())

    def _gather(self, kept: Kept) -> tuple[Tensor, Tensor]:
        """What all processes wrote down: each fills its own part of one long table."""
        number = min(int(kept.number), len(kept.keys))
        mine = torch.stack((kept.keys[:number], kept.channels[:number]))
        if self._group is None:
            return mine[0], mine[1]
        rank, size = dist.get_rank(self._group), dist.get_world_size(self._group)
        numbers = self._filled((size,), 0)
        numbers[rank] = number
        self._reduce(numbers, "SUM")
        start = int(numbers[:rank].sum())
        table = self._filled((2, int(numbers.sum())), 0)
        table[:, start : start + number] = mine
        self._reduce(table, "SUM")
        return table[0], table[1]

    # ---- checks and small things ----

    def _check_same(self, count: int, checksum: Tensor) -> None:
        if self._fingerprint is None:
            self._fingerprint = (count, checksum)
            return
        before, expected = self._fingerprint
        if count != before:
            raise ChangedStreamError(
                f"pass {self.passes + 1} saw {count} values, the first {before}"
            )
        # The sums of a batch are modulo the width of a key, so only that much of them is known.
        known = -1 if self._dtype == torch.float64 else 2**32 - 1
        other = int(((checksum - expected) & known != 0).sum())
        if other:
            raise ChangedStreamError(
                f"pass {self.passes + 1} saw other values than the first in {other} of "
                f"{len(checksum)} channels"
            )

    def _check_finite(self) -> None:
        for table in (self._smallest, self._largest):
            bad = (~from_keys(table, self._dtype).isfinite()).nonzero().flatten().tolist()
            if bad:
                raise NotFiniteError(
                    f"NaN or infinity in {counted(len(bad), 'channel')}, the first is {bad[0]}: "
                    "take such values out of the data, or, if the network makes them, go back to "
                    "before it diverged"
                )

    def _note_empty_bits(self, x: Tensor) -> None:
        self._empty_bits = min(self._empty_bits, EMPTY_BITS.get(x.dtype, 0))

    def _agree_on_empty_bits(self) -> None:
        narrowest = self._filled((1,), 0 if self._dtype == torch.float64 else self._empty_bits)
        self._reduce(narrowest, "MIN")
        self._empty_bits = int(narrowest)

    def _dense(self, x: Tensor, dim: int) -> tuple[Tensor, layout.ChannelView]:
        """``x``, copied only if it is not dense, and how its channels lie in memory."""
        channels = self._channels
        if channels != 1 and not (-x.dim() <= dim < x.dim() and x.shape[dim] == channels):
            raise ValueError(
                f"expected {channels} channels in dim={dim}, got a batch of shape "
                f"{tuple(x.shape)}: correct the number of channels, or dim"
            )
        x = layout.densify(x.detach())
        view = layout.view(x, channels, dim)
        assert view is not None, "densify left gaps"
        return x, view

    def _filled(self, shape: tuple[int, ...], value: int) -> Tensor:
        return torch.full(shape, value, dtype=torch.int64, device=self._device)

    def _reduce(self, table: Tensor, op: str) -> None:
        if self._group is not None:
            dist.all_reduce(table, getattr(dist.ReduceOp, op), group=self._group)
