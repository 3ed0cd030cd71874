"""Exact quantiles of streams: per channel, in few passes, over several processes."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor
from torch import distributed as dist

from .._data_parallel import all_gather_objects
from .._text import counted
from ..ops import layout, ordered_keys
from ..ops.key_statistics import CollectedKeys, KeyHistogram, RunningStatistics, channel_view
from ..ops.reference import compute_dtype

_SAMPLE = 2048  # values of each channel
_LARGEST = int(
    ordered_keys.to_keys(torch.tensor(torch.finfo(torch.float64).max, dtype=torch.float64))
)
_OCTAVES = 16  # below the largest value looked for: what is smaller is hardly ever the answer
_MARGIN = 0.08  # on both sides of the quantile of the sample, as a share of all values


class NotFiniteError(ValueError):
    """The values of a stream are not finite."""


class EmptyStreamError(ValueError):
    """A stream has no values."""


class ChangedStreamError(RuntimeError):
    """A later pass read other values than the first."""


class QuantileSearch:
    """Finds an exact quantile of every channel of a stream that can be read more than once.

    The quantile q of n values is the one of rank ceil(q n), counted from the smallest: one of the
    values, the same as by sorting, however the stream is split into batches or over processes.
    -0.0 and 0.0 are one value. The search starts in an interval around the quantile of a sample
    (`probe`). The first pass over the stream makes a histogram of that interval, of at most
    ``bins`` bins; each later pass makes one of the bin that holds the rank, or collects its values
    if they are few. With 16-bit dtypes one pass is the rule, with others two or three. Between
    passes, the number of values and a checksum are compared: a stream that did not repeat itself is
    an error (`ChangedStreamError`).

    Memory: at most 8 bytes times ``bins`` for every channel, besides a few numbers.

    Attributes:
        below: How many values of each channel are smaller than its quantile.
        count: The number of values in each channel.
        passes: The number of passes over the stream so far.

    Args:
        channels: Number of channels; 1 treats all values of a batch as one channel.
        quantile: Which to find, in (0, 1].
        bins: Bins of a histogram at most, at least 2.
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
        # As written, not as stored: 0.9 * 10 is 9, but the float nearest 0.9 is a little more.
        self._quantile = Fraction(str(float(quantile)))
        self._channels, self._bins = channels, bins
        self._device, self._group = torch.device(device), group
        # An empty interval, which every sample extends.
        self._lo = self._filled(torch.iinfo(torch.int64).max, channels)
        self._hi = self._filled(torch.iinfo(torch.int64).min, channels)
        self._gap = self._filled(0, channels)  # of `KeyInterval`
        self.below = self._filled(0, channels)  # until the quantile is known, than `_lo`
        self._inside = self._filled(0, channels)  # values in the interval
        self._dtype = torch.float32
        # Of all keys; the first value of a wider dtype reduces them.
        self._zero_bits = max(ordered_keys.TRAILING_ZERO_BITS.values())
        self.count, self.passes = 0, 0

    # ---- results ----

    @property
    def done(self) -> bool:
        """Whether the quantile of every channel is known."""
        return self.passes > 0 and bool((self._lo == self._hi).all())

    @property
    def values(self) -> Tensor:
        """The quantile of each channel, in float32, or float64 if the stream is."""
        if not self.done:
            raise RuntimeError("the quantiles are not known yet: another pass is needed")
        return ordered_keys.from_keys(self._lo, self._dtype)

    @property
    def largest(self) -> Tensor:
        """The largest value of each channel."""
        return ordered_keys.from_keys(self._largest, self._dtype)

    # ---- the stream ----

    def probe(self, x: Tensor, dim: int = 1) -> None:
        """Samples a batch, to start near the quantile. A bad sample costs a pass, nothing else."""
        x, view = self._dense(x, dim)
        if x.dtype == torch.float64:
            self._dtype = torch.float64
        if x.numel() == 0:
            return
        inner, total = view.inner, view.outer * view.inner
        # Steps of the golden section: a regular grid would sample the same columns of every image.
        at = torch.arange(min(_SAMPLE, total), device=x.device) * (int(total * 0.618) | 1) % total
        sample = channel_view(x, view)[at // inner, :, at % inner]
        sample = sample.to(compute_dtype(x)).nan_to_num().sort(0).values  # (sample, C)
        last, q = len(sample) - 1, float(self._quantile)
        low = max(0, math.floor((q - _MARGIN) * last))
        high = min(last, math.ceil((q + _MARGIN) * last))
        # Keys of float64 until `start`, where the processes agree on a dtype.
        self._lo = torch.minimum(self._lo, ordered_keys.to_keys(sample[low].double()))
        self._hi = torch.maximum(self._hi, ordered_keys.to_keys(sample[high].double()))

    def start(self) -> None:
        """Ends the sampling: all processes agree on dtype and interval."""
        wide = self._reduce(self._filled(self._dtype == torch.float64, 1), "MAX")
        self._reduce(self._lo, "MIN")
        self._reduce(self._hi, "MAX")
        self._dtype = torch.float64 if int(wide) else torch.float32
        probed = bool((self._lo <= self._hi).all())
        if not probed:  # search everywhere
            self._dtype = torch.float64
            self._hi = self._filled(_LARGEST, self._channels)
            self._lo = -self._hi
        self._lo, self._hi = (
            ordered_keys.to_keys(ordered_keys.from_keys(keys, torch.float64).to(self._dtype)).long()
            for keys in (self._lo, self._hi)
        )
        if probed:
            octave = round(1 / torch.finfo(self._dtype).eps)  # in keys
            largest = torch.maximum(self._lo.abs(), self._hi.abs())
            self._gap = (largest - _OCTAVES * octave).clamp(min=0)
        self._agree_on_zero_bits()
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
        self._pass_count += view.outer * view.inner
        if x.numel():
            self._statistics.update(x, view)

    def finish_pass(self) -> None:
        """Ends a pass over the stream: adds up all processes and narrows the search."""
        statistics = self._statistics
        count = int(self._reduce(self._filled(self._pass_count, 1), "SUM"))
        self._reduce(statistics.checksum, "SUM")
        self._reduce(statistics.below, "SUM")
        if self.passes == 0:
            if count == 0:
                raise EmptyStreamError("no values were seen")
            self.count, self._checksum = count, statistics.checksum
            self._smallest = self._reduce(statistics.smallest, "MIN")
            self._largest = self._reduce(statistics.largest, "MAX")
            self._check_finite()
        else:
            self._check_same(count, statistics.checksum)
        self._agree_on_zero_bits()
        rank = math.ceil(self._quantile * self.count)
        if isinstance(statistics.target, CollectedKeys):
            self._select(rank, *self._all_collected(statistics.target))
        else:
            self._narrow(rank, self._reduce(statistics.target.counts, "SUM"))
        self.passes += 1
        self._gap = torch.zeros_like(self._gap)
        self._begin_pass()

    # ---- the search ----

    def _begin_pass(self) -> None:
        limits = torch.iinfo(ordered_keys.KEY_DTYPES[self._dtype])
        self._pass_count = 0
        # The interval of the sample is a guess, even where it is a single key.
        self._unsolved = (self._lo < self._hi) | (self.passes == 0)
        lo, hi = (ordered_keys.softshrink(keys, self._gap) for keys in (self._lo, self._hi))
        shift = ordered_keys.finest_shift(lo, hi, self._bins, self._zero_bits)
        interval = ordered_keys.KeyInterval(
            torch.where(self._unsolved, self._lo, limits.max),
            torch.where(self._unsolved, self._hi, limits.min),
            self._gap,
            shift,
        )
        inside = int(torch.where(self._unsolved, self._inside, 0).sum())
        # A collected value takes two numbers, a bin one.
        if self.passes > 0 and 2 * inside <= self._bins * self._channels:
            target = CollectedKeys(inside, self._device)
        else:
            bins = int(((hi >> shift) - (lo >> shift)).max()) + 1
            target = KeyHistogram(self._channels, bins, self._device)
        self._statistics = RunningStatistics(interval, target, limits.max)

    def _narrow(self, rank: int, counts: Tensor) -> None:
        """Narrows the interval to the bin that holds the rank, or to what lies outside."""
        lo, hi = self._lo, self._hi
        under = self._statistics.below if self.passes == 0 else self.below
        # Values up to the end of each bin; in place, for this is the largest table there is.
        total = torch.cumsum(counts, 1, out=counts).add_(under.unsqueeze(1))
        bins = (total < rank).sum(1).clamp(max=counts.shape[1] - 1)
        upto = total.gather(1, bins.unsqueeze(1)).squeeze(1)
        before = total.gather(1, (bins - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        before = torch.where(bins > 0, before, under)
        start, end = self._statistics.interval.bin_ends(bins)
        new = [torch.maximum(lo, start), torch.minimum(hi, end), before, upto - before]
        if self.passes == 0:  # the sample may have missed the quantile
            zero, last = torch.zeros_like(lo), total[:, -1]
            new = _select_columns(rank <= under, [self._smallest, lo - 1, zero, under], new)
            new = _select_columns(
                rank > last, [hi + 1, self._largest, last, self.count - last], new
            )
        new[:2] = ordered_keys.round_inwards(new[0], new[1], self._zero_bits)
        old = [lo, hi, self.below, self._inside]
        new = _select_columns(self._unsolved, new, old)
        self._lo, self._hi, self.below, self._inside = new

    def _select(self, rank: int, keys: Tensor, channels: Tensor) -> None:
        """Selects the key of the rank from all keys in the intervals."""
        keys, order = keys.sort()
        channels, order = channels[order].sort(stable=True)
        keys = keys[order]
        unsolved = self._unsolved.nonzero().squeeze(1)
        inside = self._inside[unsolved]
        if len(keys) != int(inside.sum()):
            raise ChangedStreamError(f"pass {self.passes + 1} saw other values than the first")
        answer = keys[inside.cumsum(0) - inside + rank - 1 - self.below[unsolved]]
        self._lo[unsolved] = self._hi[unsolved] = answer
        smaller = keys < self._lo[channels]
        self.below.index_add_(0, channels, smaller.long())

    def _all_collected(self, collected: CollectedKeys) -> tuple[Tensor, Tensor]:
        """The keys of all processes and their channels: each process fills its part of a table."""
        number = min(int(collected.count), collected.size)
        numbers = all_gather_objects(number, self._group)
        start = 0 if self._group is None else sum(numbers[: dist.get_rank(self._group)])
        table = self._filled(0, 2, sum(numbers))
        table[0, start : start + number] = collected.keys[:number]
        table[1, start : start + number] = collected.channels[:number]
        keys, channels = self._reduce(table, "SUM")
        return keys, channels

    # ---- checks and small things ----

    def _check_same(self, count: int, checksum: Tensor) -> None:
        if count != self.count:
            raise ChangedStreamError(
                f"pass {self.passes + 1} saw {count} values, the first {self.count}"
            )
        # Checksums are modulo the width of a key.
        known = -1 if self._dtype == torch.float64 else 2**32 - 1
        other = int(((checksum - self._checksum) & known != 0).sum())
        if other:
            raise ChangedStreamError(
                f"pass {self.passes + 1} saw other values than the first in {other} of "
                f"{len(checksum)} channels"
            )

    def _check_finite(self) -> None:
        for keys in (self._smallest, self._largest):
            finite = ordered_keys.from_keys(keys, self._dtype).isfinite()
            if not finite.all():
                bad = (~finite).nonzero()
                raise NotFiniteError(
                    f"NaN or infinity in {counted(len(bad), 'channel')}, the first is "
                    f"{int(bad[0])}: "
                    "take such values out of the data, or, if the network makes them, go back to "
                    "before it diverged"
                )

    def _agree_on_zero_bits(self) -> None:
        zero_bits = self._filled(0 if self._dtype == torch.float64 else self._zero_bits, 1)
        self._zero_bits = int(self._reduce(zero_bits, "MIN"))

    def _dense(self, x: Tensor, dim: int) -> tuple[Tensor, layout.ChannelView]:
        """``x``, copied only if it is not dense, and how its channels lie in memory."""
        channels = self._channels
        if channels != 1 and not (-x.dim() <= dim < x.dim() and x.shape[dim] == channels):
            raise ValueError(
                f"expected {channels} channels in dim={dim}, got a batch of shape "
                f"{tuple(x.shape)}: correct the number of channels, or dim"
            )
        self._zero_bits = min(self._zero_bits, ordered_keys.TRAILING_ZERO_BITS.get(x.dtype, 0))
        x = layout.densify(x.detach())
        view = layout.view(x, channels, dim)
        assert view is not None, "densify left gaps"
        return x, view

    def _filled(self, value: int, *shape: int) -> Tensor:
        return torch.full(shape, value, dtype=torch.int64, device=self._device)

    def _reduce(self, table: Tensor, op: str) -> Tensor:
        """Reduces a table over all processes, in place."""
        if self._group is not None:
            dist.all_reduce(table, getattr(dist.ReduceOp, op), group=self._group)
        return table


def _select_columns(where: Tensor, a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
    return [torch.where(where, x, y) for x, y in zip(a, b, strict=True)]
