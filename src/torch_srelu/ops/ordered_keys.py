"""Numbers as integers, their *keys*, and intervals of keys cut into bins.

Sign and magnitude of a number become one signed integer of the same width, in the order of the
numbers, with one key for -0.0 and 0.0, and NaN beyond infinity.

Half of all keys belong to numbers between -1 and 1, most of these far closer to zero than any value
is. So bins are cut from *folded* keys (`fold`): all up to a gap from zero are one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

KEYS = {torch.float32: torch.int32, torch.float64: torch.int64}
# Of the keys, as float32, of narrower numbers: so many low bits are zero.
EMPTY_BITS = {torch.bfloat16: 16, torch.float16: 13}


def to_keys(x: Tensor) -> Tensor:
    """The keys of float32 or float64 numbers, of the same width."""
    bits = x.view(KEYS[x.dtype])
    magnitude = bits & torch.iinfo(bits.dtype).max
    return torch.where(bits < 0, -magnitude, magnitude)


def from_keys(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers of dtype float32 or float64 whose keys these are."""
    bits = keys.abs().to(KEYS[dtype])
    return torch.where(keys < 0, -bits.view(dtype), bits.view(dtype))


def fold(keys: Tensor, gap: Tensor) -> Tensor:
    """Keys closer to zero by ``gap``, in the same order; those that get there are one."""
    return keys.sign() * (keys.abs() - gap).clamp(min=0)


@dataclass
class Interval:
    """The keys ``lo`` to ``hi`` of each channel, cut into bins.

    Attributes:
        gap: Of `fold`.
        shift: A bin has ``2 ** shift`` folded keys.
        first: The number of the first bin.
    """

    lo: Tensor
    hi: Tensor
    gap: Tensor
    shift: Tensor

    def __post_init__(self) -> None:
        self.first = fold(self.lo, self.gap) >> self.shift

    def ends(self, bins: Tensor) -> tuple[Tensor, Tensor]:
        """The first and the last key of one bin of each channel, counted from `first`."""
        gap, shift = self.gap, self.shift
        start = (self.first + bins) << shift
        end = start | ((1 << shift) - 1)
        # Inside the interval, where nothing overflows.
        start, end = start.maximum(fold(self.lo, gap)), end.minimum(fold(self.hi, gap))
        # The bin of the folded key 0 holds all keys from -gap to gap.
        return start + torch.where(start > 0, gap, -gap), end + torch.where(end < 0, -gap, gap)


def finest_shift(lo: Tensor, hi: Tensor, bins: int, empty_bits: int) -> Tensor:
    """The smallest shift that cuts the folded keys ``lo`` to ``hi`` into at most ``bins`` bins.

    No smaller than ``empty_bits``: finer bins would tell nothing more.
    """
    # The width in float64, where it cannot overflow, gives bins that are surely wide enough
    # but up to four times too wide.
    width = torch.frexp(hi.double() - lo.double() + 1).exponent.long()
    shift = (width - bins.bit_length() + 2).clamp(min=0)
    for _ in range(2):
        finer = (shift - 1).clamp(min=0)
        shift = torch.where((hi >> finer) - (lo >> finer) < bins, finer, shift)
    return shift.clamp(min=empty_bits)


def without_empty_ends(lo: Tensor, hi: Tensor, empty_bits: int) -> tuple[Tensor, Tensor]:
    """The part of an interval from the first to the last key that a value can have."""
    return -(-lo >> empty_bits << empty_bits), hi >> empty_bits << empty_bits
