"""Floating-point numbers as integers in the same order, their *keys*, and histogram bins of keys.

Sign and magnitude of a number become one signed integer of the same width, with one key for -0.0
and 0.0, and NaN beyond infinity.

Half of all keys belong to numbers between -1 and 1, most of these far closer to zero than any value
is. So bins are intervals of keys after `softshrink`: all keys up to a gap from zero share one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

KEY_DTYPES = {torch.float32: torch.int32, torch.float64: torch.int64}
# Low bits that are zero in every key, as of a float32, of these narrower numbers.
TRAILING_ZERO_BITS = {torch.bfloat16: 16, torch.float16: 13}


def to_keys(x: Tensor) -> Tensor:
    """The keys of float32 or float64 numbers, of the same width."""
    bits = x.view(KEY_DTYPES[x.dtype])
    magnitude = bits & torch.iinfo(bits.dtype).max
    return torch.where(bits < 0, -magnitude, magnitude)


def from_keys(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers of dtype float32 or float64 whose keys these are."""
    bits = keys.abs().to(KEY_DTYPES[dtype])
    return torch.where(keys < 0, -bits.view(dtype), bits.view(dtype))


def softshrink(keys: Tensor, gap: Tensor) -> Tensor:
    """`torch.nn.functional.softshrink` of integers, with ``gap`` as ``lambd``."""
    return keys.sign() * (keys.abs() - gap).clamp(min=0)


@dataclass
class KeyInterval:
    """The keys ``lo`` to ``hi`` of each channel, divided into histogram bins.

    Attributes:
        gap: Of `softshrink`.
        shift: A bin has ``2 ** shift`` keys after `softshrink`.
        first: The number of the first bin.
    """

    lo: Tensor
    hi: Tensor
    gap: Tensor
    shift: Tensor

    def __post_init__(self) -> None:
        self.first = softshrink(self.lo, self.gap) >> self.shift

    def bin_ends(self, bins: Tensor) -> tuple[Tensor, Tensor]:
        """The first and the last key of one bin of each channel, counted from `first`."""
        gap, shift = self.gap, self.shift
        start = (self.first + bins) << shift
        end = start | ((1 << shift) - 1)
        # Inside the interval, where nothing overflows.
        start, end = start.maximum(softshrink(self.lo, gap)), end.minimum(softshrink(self.hi, gap))
        # The bin of 0 holds all keys from -gap to gap.
        return start + torch.where(start > 0, gap, -gap), end + torch.where(end < 0, -gap, gap)


def finest_shift(lo: Tensor, hi: Tensor, bins: int, zero_bits: int) -> Tensor:
    """The smallest shift that divides the shrunk keys ``lo`` to ``hi`` into at most ``bins`` bins.

    No smaller than ``zero_bits``: finer bins would tell nothing more.
    """
    # The width in float64, where it cannot overflow, gives bins that are surely wide enough
    # but up to four times too wide.
    width = torch.frexp(hi.double() - lo.double() + 1).exponent.long()
    shift = (width - bins.bit_length() + 2).clamp(min=0)
    for _ in range(2):
        finer = (shift - 1).clamp(min=0)
        shift = torch.where((hi >> finer) - (lo >> finer) < bins, finer, shift)
    return shift.clamp(min=zero_bits)


def round_inwards(lo: Tensor, hi: Tensor, zero_bits: int) -> tuple[Tensor, Tensor]:
    """The first and the last key from ``lo`` to ``hi`` of which ``zero_bits`` low bits are zero."""
    return -(-lo >> zero_bits << zero_bits), hi >> zero_bits << zero_bits
