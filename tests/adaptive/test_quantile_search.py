"""Exact order statistics, against sorting everything."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import DEVICE
from small_networks import threads
from torch_srelu import use_backend
from torch_srelu.adaptive.quantile_search import ChangedStreamError, QuantileSearch
from torch_srelu.ops.cpu import cpu_backend as cpu
from torch_srelu.ops.key_statistics import CollectedKeys
from two_processes import run_in_two_processes

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.fixture(params=["cpu", "reference"])
def execution(request):
    if request.param == "cpu" and cpu.unavailable_reason() is not None:
        pytest.skip("the native kernels were not compiled")
    with use_backend(request.param):
        yield


def search(batches, channels, quantile, dim=1, bins=2048, probe=None, group=None):
    device = batches[0].device if batches else "cpu"
    found = QuantileSearch(channels, quantile, bins=bins, device=device, group=group)
    if batches:
        found.probe(batches[0] if probe is None else probe, dim)
    found.start()
    while not found.done:
        for batch in batches:
            found.update(batch, dim)
        found.finish_pass()
    return found


def rows_of(batches, channels, dim=1):
    """All values of each channel, (channels, n)."""
    whole = channels == 1
    rows = (b.reshape(1, -1) if whole else b.movedim(dim, 0).reshape(channels, -1) for b in batches)
    return torch.cat(list(rows), 1)


def by_sorting(batches, channels, quantile, dim=1):
    values = rows_of(batches, channels, dim).sort(1).values
    return values[:, rank(quantile, values.shape[1]) - 1]


def rank(q: float, n: int) -> int:
    """ceil(q n) in whole numbers, for a q of at most four decimals."""
    return -(-round(q * 10_000) * n // 10_000)


LAYOUTS = {
    "planes": ((5, 3, 6, 7), 1, 3, lambda x: x),
    "long planes": ((2, 3, 1500), 1, 3, lambda x: x),
    "channels last": (
        (5, 3, 6, 7),
        1,
        3,
        lambda x: x.contiguous(memory_format=torch.channels_last),
    ),
    "features": ((40, 6), 1, 6, lambda x: x),
    "tokens": ((4, 9, 6), -1, 6, lambda x: x),
    "short runs": ((30, 1100, 2), 1, 1100, lambda x: x),
    "sliced": ((5, 3, 6, 14), 1, 3, lambda x: x[..., ::2]),
    "expanded": ((5, 3, 1, 7), 1, 3, lambda x: x.expand(5, 3, 4, 7)),
    "all as one": ((5, 3, 6, 7), 1, 1, lambda x: x),
    "scalar": ((), 1, 1, lambda x: x),
}


@pytest.mark.usefixtures("execution")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_equals_sorting(name, dtype):
    shape, dim, channels, arrange = LAYOUTS[name]
    generator = torch.Generator().manual_seed(0)
    # Batches of very different scale: the first is a poor guess of the rest.
    scales = (1.0, 30.0, 0.01, 5.0)
    batches = [arrange((torch.randn(shape, generator=generator) * s).to(dtype)) for s in scales]
    everything = rows_of(batches, channels, dim)
    for q in (0.5, 0.9, 0.0001, 1.0):
        found = search(batches, channels, q, dim, bins=64)
        expected = by_sorting(batches, channels, q, dim)
        assert torch.equal(found.values.to(dtype), expected)
        assert found.count == sum(b.numel() for b in batches) // channels
        assert torch.equal(found.below, (everything < expected.unsqueeze(1)).sum(1))
        assert torch.equal(found.largest.to(dtype), everything.amax(1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["planes", "channels last", "sliced", "all as one"])
def test_triton_equals_sorting(name, dtype):
    shape, dim, channels, arrange = LAYOUTS[name]
    generator = torch.Generator().manual_seed(0)
    batches = [
        arrange((torch.randn(n, *shape[1:], generator=generator) * s).to(DEVICE, dtype))
        for n, s in ((3, 1.0), (0, 1.0), (2, 5.0))
    ]
    batches[0][:, -1] = 0.5  # a constant channel, at first
    everything = rows_of(batches, channels, dim)
    for q in (0.9, 0.3):
        with use_backend("triton"):
            found = search(batches, channels, q, dim, bins=64)
        expected = by_sorting(batches, channels, q, dim)
        assert torch.equal(found.values.to(dtype), expected)
        assert torch.equal(found.below, (everything < expected.unsqueeze(1)).sum(1))


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_triton_equals_sorting_at_full_size(memory, dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (256, 96, 32, 32)
    batches = [
        torch.randn(shape, generator=generator, device="cuda")
        .relu_()
        .mul_(1 + 0.05 * i)
        .to(dtype, memory_format=memory)
        for i in range(3)
    ]
    for q in (0.9, 0.2):
        found = search(batches, 96, q)
        assert found.passes <= (1 if dtype.itemsize == 2 else 3)
        assert torch.equal(found.values.to(dtype), by_sorting(batches, 96, q))


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU with 8 GB")
@pytest.mark.parametrize("shape", [(2, 2, 600_000_016), (1_100_000_000, 2)])
def test_more_than_two_to_the_31_values(shape):
    x = torch.zeros(shape, dtype=torch.bfloat16, device="cuda")
    x[-1, -1] = 5.0
    found = search([x], 2, 1.0)
    assert found.values.tolist() == [0.0, 5.0]
    fives = x[-1, -1].numel()
    assert found.below.tolist() == [0, found.count - fives]


@pytest.mark.usefixtures("execution")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_16_bits_need_one_pass(dtype):
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(64, 5, 100, generator=generator).to(dtype) for _ in range(3)]
    for q in (0.9, 0.1):
        found = search(batches, 5, q)
        assert found.passes == 1
        assert torch.equal(found.values.to(dtype), by_sorting(batches, 5, q))


@pytest.mark.usefixtures("execution")
@pytest.mark.parametrize("later", DTYPES[:1] + DTYPES[2:])
def test_a_stream_may_change_between_narrow_dtypes(later):
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(64, 5, 100, generator=generator) for _ in range(2))
    for dtype in (torch.bfloat16, torch.float16):
        batches = [first.to(dtype), second.to(later)]
        for q in (0.9, 0.1):
            expected = by_sorting([b.float() for b in batches], 5, q)
            assert torch.equal(search(batches, 5, q).values, expected)


@pytest.mark.usefixtures("execution")
def test_any_finite_numbers_in_any_batches():
    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def check(data):
        width = data.draw(st.sampled_from([32, 64]))
        numbers = st.floats(width=width, allow_nan=False, allow_infinity=False)
        ties = st.sampled_from([0.0, -0.0, 1.0])
        sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
        dtype = torch.float32 if width == 32 else torch.float64
        batches = [
            torch.tensor(
                data.draw(st.lists(numbers | ties, min_size=2 * n, max_size=2 * n)), dtype=dtype
            ).reshape(n, 2)
            for n in sizes
        ]
        q = data.draw(st.integers(1, 10_000)) / 10_000
        probe = data.draw(st.sampled_from(batches))
        found = search(batches, 2, q, bins=data.draw(st.sampled_from([8, 2048])), probe=probe)
        assert torch.equal(found.values, by_sorting(batches, 2, q))

    check()


def test_rank_is_taken_from_the_quantile_as_written():
    for q, n, expected in (
        (0.9, 10, 9),
        (0.7, 10, 7),
        (0.1, 30, 3),
        (0.29, 100, 29),
        (0.91, 10, 10),
    ):
        found = search([torch.arange(1.0, n + 1).reshape(n, 1)], 1, q)
        assert found.values.item() == expected


def test_zero_has_no_sign():
    batch = torch.tensor([[-0.0], [0.0], [-0.0], [-1.0], [1.0]])
    for q in (0.4, 0.8):
        found = search([batch], 1, q)
        assert found.values.tolist() == [0.0]
        assert found.below.tolist() == [1]


@pytest.mark.parametrize("shape", [(5, 7, 4000), (20000, 7, 1)])
def test_the_number_of_threads_does_not_matter(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    for q in (0.5, 0.9):
        found = []
        for number in (1, 2, 3):
            with threads(number):
                found.append(search([x], 7, q, bins=128))
        for other in found[1:]:
            assert torch.equal(other.values, found[0].values)
            assert torch.equal(other.below, found[0].below)
        assert torch.equal(found[0].values, by_sorting([x], 7, q))


def test_few_passes_and_bounded_memory():
    generator = torch.Generator().manual_seed(0)
    # Brighter from image to image and from left to right: the probe must see all parts of a batch.
    light = torch.linspace(1, 3, 64)[:, None, None, None] * torch.linspace(1, 9, 32)
    batches = [torch.randn(64, 20, 32, 32, generator=generator) * light for _ in range(4)]
    found = search(batches, 20, 0.9)
    assert found.passes == 2
    again = QuantileSearch(20, 0.9)
    again.probe(batches[0])
    again.start()
    for _ in range(2):
        target = again._statistics.target
        if isinstance(target, CollectedKeys):
            held = target.keys.nbytes + target.channels.nbytes
        else:
            held = target.counts.nbytes
        assert held <= 8 * 2048 * 20
        for batch in batches:
            again.update(batch)
        again.finish_pass()


def test_a_stream_without_probe_is_searched_everywhere():
    batch = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    found = QuantileSearch(3, 0.9)
    found.start()
    while not found.done:
        found.update(batch)
        found.finish_pass()
    assert torch.equal(found.values.float(), by_sorting([batch], 3, 0.9))


def test_errors():
    for wrong in (torch.ones(4, 3), torch.ones(2)):
        with pytest.raises(ValueError, match="expected 2 channels in dim=1"):
            QuantileSearch(2, 0.9).probe(wrong)
    empty = QuantileSearch(2, 0.9)
    empty.start()
    with pytest.raises(ValueError, match="no values"):
        empty.finish_pass()
    with pytest.raises(RuntimeError, match="not known yet"):
        _ = QuantileSearch(2, 0.9).values


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
def test_not_a_finite_number(bad):
    batch = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    batch[7, 2] = bad
    for probe in (batch, torch.zeros(1, 3)):
        with pytest.raises(ValueError, match="NaN or infinity in 1 channel, the first is 2"):
            search([batch], 3, 0.9, probe=probe)


def test_a_stream_that_changes_is_caught():
    generator = torch.Generator().manual_seed(0)
    first, other = (torch.randn(500, 2, generator=generator) for _ in range(2))
    for again, message in (
        (other, "other values.* in 2 of 2"),
        (first[1:], "saw 499 values, the first 500"),
    ):
        found = QuantileSearch(2, 0.9, bins=8)
        found.probe(first)
        found.start()
        found.update(first)
        found.finish_pass()
        assert not found.done
        found.update(again)
        with pytest.raises(ChangedStreamError, match=message):
            found.finish_pass()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_values_in_other_batches_are_the_same_stream(dtype):
    x = 100 * torch.rand(5000, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
    found = QuantileSearch(2, 0.9, bins=8)
    found.probe(x)
    found.start()
    ways = iter([x.split(7), x.flip(0).split(1000), [x], x.roll(99, 0).split(33)])
    while not found.done:
        for batch in next(ways, [x]):
            found.update(batch)
        found.finish_pass()
    assert found.passes > 2
    assert torch.equal(found.values, by_sorting([x], 2, 0.9))


def test_a_stream_that_turns_wide_is_refused():
    found = QuantileSearch(1, 0.9)
    found.probe(torch.ones(3))
    found.start()
    with pytest.raises(TypeError, match="float64"):
        found.update(torch.ones(3, dtype=torch.float64))


def test_two_processes(tmp_path):
    run_in_two_processes(_split_over_processes, tmp_path)


def _split_over_processes(rank_of_process, group):
    for dtype in (torch.float32, torch.float64):
        generator = torch.Generator().manual_seed(0)
        batches = [torch.randn(9, 4, 11, generator=generator).to(dtype) * 3**i for i in range(5)]
        shares = ([batches[:2], batches[2:]], [batches, []], [[], batches])
        for share, bins, q in itertools.product(shares, (16, 2048), (0.9, 0.25)):
            found = search(share[rank_of_process], 4, q, bins=bins, group=group)
            assert torch.equal(found.values, by_sorting(batches, 4, q))
            assert found.count == 5 * 9 * 11
    # One process reads narrower numbers than the other.
    batches = [b.to(d) for b, d in zip(batches, (torch.bfloat16, torch.float32), strict=False)]
    for q in (0.9, 0.25):
        found = search(batches[rank_of_process:][:1], 4, q, group=group)
        assert torch.equal(found.values, by_sorting([b.float() for b in batches], 4, q))
