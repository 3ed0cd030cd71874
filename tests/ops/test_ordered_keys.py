"""Keys of numbers, and the bins of intervals of keys, against Python integers."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_srelu.ops.ordered_keys import (
    TRAILING_ZERO_BITS,
    KeyInterval,
    finest_shift,
    from_keys,
    round_inwards,
    softshrink,
    to_keys,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keys_are_in_the_order_of_the_numbers(dtype):
    info = torch.finfo(dtype)
    ordered = [-math.inf, info.min, -1.0, -info.tiny, -info.smallest_normal / 2, 0.0]
    x = torch.tensor([*ordered, *(-v for v in reversed(ordered[:-1]))], dtype=dtype)
    keys = to_keys(x)
    assert bool((keys.diff() > 0).logical_or(x.diff() == 0).all())
    assert torch.equal(from_keys(keys.long(), dtype), x)
    assert int(to_keys(-torch.zeros((), dtype=dtype))) == 0
    nan = torch.tensor([math.nan, -math.nan], dtype=dtype)
    assert bool((to_keys(nan).abs() > keys[-1]).all())


@pytest.mark.parametrize("dtype", TRAILING_ZERO_BITS)
def test_numbers_of_16_bits_leave_low_bits_empty(dtype):
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    keys = to_keys(every[every.isfinite()].float()).tolist()
    assert math.gcd(*keys) == 2 ** TRAILING_ZERO_BITS[dtype]


@pytest.mark.parametrize(
    ("lo", "hi", "gap", "shift"),
    [
        (-40, 55, 7, 2),  # around zero
        (-3, 50, 7, 2),  # from inside of the gap
        (-90, -8, 7, 3),
        (3, 90, 0, 0),
        (-9, 9, 20, 1),  # all in the gap
        (-70, 70, 0, 4),
        (5, 5, 0, 4),
    ],
)
def test_a_bin_has_the_keys_between_its_ends(lo, hi, gap, shift):
    interval = KeyInterval(*(torch.tensor([v]) for v in (lo, hi, gap, shift)))
    keys = torch.arange(lo, hi + 1)
    bins = (softshrink(keys, interval.gap) >> shift) - interval.first
    assert bins.unique().tolist() == list(range(int(bins[-1]) + 1))
    for number in bins.unique():
        start, end = interval.bin_ends(number)
        assert torch.equal(keys[(keys >= start) & (keys <= end)], keys[bins == number])


@given(
    st.integers(-(2**51), 2**51),
    st.integers(0, 2**51),
    st.integers(2, 5000),
    st.sampled_from([0, 13, 16]),
)
def test_bins_are_as_fine_as_their_number_allows(lo, width, bins, empty_bits):
    hi = lo + width
    finest = next(s for s in itertools.count() if (hi >> s) - (lo >> s) < bins)
    found = finest_shift(torch.tensor([lo]), torch.tensor([hi]), bins, empty_bits)
    assert found.tolist() == [max(finest, empty_bits)]


@pytest.mark.parametrize("bins", [2, 3, 2048, 4095])
def test_all_keys_there_are_can_be_cut_into_bins(bins):
    most = torch.iinfo(torch.int64).max
    shift = int(finest_shift(torch.tensor(-most), torch.tensor(most), bins, 0))
    assert (most >> shift) - (-most >> shift) < bins


@pytest.mark.parametrize("empty_bits", [0, 1, 3])
def test_ends_that_no_number_has_are_cut_off(empty_bits):
    for lo, hi in itertools.combinations(range(-20, 21), 2):
        found = [int(t) for t in round_inwards(*torch.tensor([lo, hi]), empty_bits)]
        possible = [k for k in range(lo, hi + 1) if k % 2**empty_bits == 0]
        assert list(range(found[0], found[1] + 1, 2**empty_bits)) == possible
