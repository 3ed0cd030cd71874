"""Key statistics of a batch: every execution against Python integers."""

import math
from collections import Counter

import pytest
import torch

from checks import DEVICE, lay_out
from torch_srelu import use_backend
from torch_srelu.ops import layout
from torch_srelu.ops.cpu import cpu_backend as cpu
from torch_srelu.ops.key_statistics import (
    CollectedKeys,
    KeyHistogram,
    RunningStatistics,
    _native_function,
)
from torch_srelu.ops.ordered_keys import KEY_DTYPES, KeyInterval, from_keys, softshrink, to_keys

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LIMITS = {dtype: torch.iinfo(key).max for dtype, key in KEY_DTYPES.items()}

BACKENDS = ["reference", "triton"] + (["cpu"] if cpu.unavailable_reason() is None else [])
# Shapes with their channels, in dim 1, and their layout.
TENSORS = {
    "runs": ((2, 3, 32), 3, "contiguous"),
    "runs, several blocks": ((2, 2, 528), 2, "contiguous"),
    "runs too short": ((5, 4, 6), 4, "contiguous"),
    "channels last": ((2, 5, 3, 4), 5, "channels_last"),
    "columns, several blocks": ((20, 70), 70, "contiguous"),
    "one channel": ((7, 9, 11), 1, "contiguous"),
}


@pytest.fixture(params=BACKENDS)
def device(request):
    """Where an execution works, while it is the one in use."""
    with use_backend(request.param):
        yield torch.device(DEVICE if request.param == "triton" else "cpu")


def test_the_compiled_library_has_the_function():
    assert (cpu.unavailable_reason() is None) == (_native_function() is not None)


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def numbers(shape, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal numbers, a third of them equal to others, with everything finite that is special."""
    x = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    x = torch.where(x.abs() < 0.8, x.round(), x).to(dtype)
    info = torch.finfo(dtype)
    special = [-0.0, 0.0, info.max, info.min, info.tiny, -info.smallest_normal / 2]
    x.view(-1)[: len(special)] = torch.tensor(special, dtype=dtype)
    return x


def keys_of(x: torch.Tensor, channels: int) -> list[list[int]]:
    """The keys of each channel: sign and magnitude of the bits, read as one number."""
    rows = x.movedim(1, 0).reshape(channels, -1) if channels > 1 else x.reshape(1, -1)
    dtype = wide(x.dtype)
    bits = rows.to(dtype).contiguous().view(KEY_DTYPES[dtype]).tolist()
    return [[b if b >= 0 else -(b & LIMITS[dtype]) for b in row] for row in bits]


def shrunk(key: int, gap: int) -> int:
    return key - gap if key > gap else key + gap if key < -gap else 0


def interval_of(channels: int, dtype: torch.dtype, device) -> tuple[KeyInterval, int]:
    """From about -1 to 1.5, another one for each channel, some with a gap; the last is empty."""
    lo = to_keys(torch.linspace(-1, 0.5, channels, dtype=wide(dtype))).long()
    hi = to_keys(torch.full((channels,), 1.5, dtype=wide(dtype))).long()
    limit = LIMITS[wide(dtype)]
    shift = torch.full((channels,), limit.bit_length() - 9) + torch.arange(channels) % 2
    if channels > 1:
        lo[-1], hi[-1] = limit, -limit
    gap = to_keys(torch.full((channels,), 0.3, dtype=wide(dtype))).long()
    gap[1::2] = 0
    bins = int(((softshrink(hi, gap) >> shift) - (softshrink(lo, gap) >> shift)).max()) + 1
    return KeyInterval(*(table.to(device) for table in (lo, hi, gap, shift))), bins


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TENSORS)
def test_statistics_histogram_and_collected_keys(device, name, dtype):
    shape, channels, arrangement = TENSORS[name]
    batches = [lay_out(numbers(shape, dtype, seed), arrangement) for seed in range(2)]
    interval, bins = interval_of(channels, dtype, device)
    counts, collected = (
        KeyHistogram(channels, bins, device),
        CollectedKeys(2 * math.prod(shape), device),
    )
    limit = LIMITS[wide(dtype)]
    statistics = [RunningStatistics(interval, target, limit) for target in (counts, collected)]
    for x in batches:
        view = layout.view(x, channels, 1)
        assert view is not None
        for known in statistics:
            known.update(x.to(device), view)

    keys = [a + b for a, b in zip(*(keys_of(x, channels) for x in batches), strict=True)]
    bounds = list(zip(interval.lo.tolist(), interval.hi.tolist(), strict=True))
    modulus = 2 ** (8 * KEY_DTYPES[wide(dtype)].itemsize)
    for known in statistics:
        assert known.below.tolist() == [
            sum(k < lo for k in row) for row, (lo, _) in zip(keys, bounds, strict=True)
        ]
        assert known.smallest.tolist() == [min(row) for row in keys]
        assert known.largest.tolist() == [max(row) for row in keys]
        assert [s % modulus for s in known.checksum.tolist()] == [sum(r) % modulus for r in keys]
    inside = [[k for k in row if lo <= k <= hi] for row, (lo, hi) in zip(keys, bounds, strict=True)]
    assert any(inside)
    cuts = (interval.lo, interval.gap, interval.shift, counts.counts)
    for row, lo, gap, shift, table in zip(inside, *(t.tolist() for t in cuts), strict=True):
        first = shrunk(lo, gap) >> shift
        expected = Counter((shrunk(k, gap) >> shift) - first for k in row)
        assert table == [expected[b] for b in range(bins)]
    number = int(collected.count)
    pairs = zip(collected.channels[:number].tolist(), collected.keys[:number].tolist(), strict=True)
    assert sorted(pairs) == sorted((c, k) for c, row in enumerate(inside) for k in row)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 2, 32), (9, 2)])
def test_no_number_is_beyond_infinity(device, shape, dtype):
    for sign in (1, -1):
        x = torch.zeros(shape, dtype=dtype)
        x[0, 0] = sign * math.inf
        x[0, 1] = math.nan
        view = layout.view(x, 2, 1)
        assert view is not None
        interval, bins = interval_of(2, dtype, device)
        histogram = KeyHistogram(2, bins, device)
        statistics = RunningStatistics(interval, histogram, LIMITS[wide(dtype)])
        statistics.update(x.to(device), view)
        ends = torch.stack((statistics.smallest, statistics.largest)).cpu()
        values = from_keys(ends, wide(dtype))
        assert values[:, 0].tolist() == sorted([0.0, sign * math.inf])
        assert int(values[:, 1].isnan().sum()) == 1


@pytest.mark.parametrize("shape", [(1, 1, 100), (50, 2)])
def test_no_more_keys_than_the_capacity_are_collected(device, shape):
    x, channels = torch.arange(100.0).reshape(shape), shape[1]
    view = layout.view(x, channels, 1)
    assert view is not None
    limit = LIMITS[torch.float32]
    tables = (torch.full((channels,), k, device=device) for k in (-limit, limit, 0, 21))
    collected = CollectedKeys(12, device)
    collected.keys.fill_(-1)
    collected.size = 10
    RunningStatistics(KeyInterval(*tables), collected, limit).update(x.to(device), view)
    assert int(collected.count) == 100
    assert collected.keys[10:].tolist() == [-1, -1]
    values = from_keys(collected.keys[:10], torch.float32).tolist()
    assert len(set(values)) == 10
    assert [int(v) % channels for v in values] == collected.channels[:10].tolist()
