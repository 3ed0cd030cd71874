"""The tilings: what holds for tensors of every shape."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("triton")

from torch_srelu.ops.layout import ChannelView
from torch_srelu.ops.triton.triton_backend import fuses_batch_norm
from torch_srelu.ops.triton.triton_tiling import (
    MAX_GRID_Y,
    MAX_SUMS_PER_CHANNEL,
    MAX_SUMS_SHARE,
    MAX_SUMS_SHARE_OF_RUNS,
    Tiling,
    backward_tiling,
    forward_tiling,
    grid,
    is_runs,
)

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
SIZES = st.integers(1, 2**30)
# Sizes of any magnitude, multiples of many powers of two among them.
views = st.builds(
    ChannelView,
    *(st.builds(lambda n, k: max(1, n >> k), SIZES, st.integers(0, 30)) for _ in range(3)),
).filter(lambda view: math.prod(view) <= 2**40)


@given(views, st.sampled_from(DTYPES), st.sampled_from([(2, False), (3, False), (4, True)]))
def test_all_programs_of_a_backward_pass_have_sums_to_write(view, dtype, read) -> None:
    """The grid has exactly `Tiling.splits` programs: others would write out of bounds."""
    tiling = backward_tiling(view, dtype, *read)
    assert tiling.splits <= MAX_GRID_Y
    assert grid(tiling) == (tiling.groups, tiling.splits, 1)
    assert tiling.splits <= tiling.steps
    assert tiling.partial_sums % (view.channels * tiling.adjacent_sums) == 0


@given(views, st.sampled_from(DTYPES))
def test_grids_fit_the_device(view, dtype) -> None:
    groups, height, depth = grid(forward_tiling(view, dtype))
    assert groups < 2**31
    assert max(height, depth) <= MAX_GRID_Y


@given(views, st.sampled_from(DTYPES))
@example(ChannelView(1, 2**21 + 4096, 1023), torch.bfloat16)
def test_fused_norms_find_columns(view, dtype) -> None:
    if fuses_batch_norm(view):
        assert backward_tiling(view, dtype, 4, norm=True).pattern == "columns"


@given(views, st.sampled_from(DTYPES))
@example(ChannelView(16, 2**28 - 1, 1), torch.bfloat16)
def test_steps_reach_no_further_than_32_bits_and_their_masks(view, dtype) -> None:
    """`triton_memory._rest` counts up to 2**31 - 16 elements."""
    tilings = (forward_tiling(view, dtype), backward_tiling(view, dtype, 2, norm=False))
    for meta, (_, columns, *_) in ((c.meta, c.sizes) for c in tilings if c.pattern == "columns"):
        assert meta["REPEAT"] * meta["ROWS"] * columns <= 2**31 - 16


@given(views, st.sampled_from(DTYPES))
def test_runs_are_tiled_as_rows_or_columns_where_these_leave_few_sums(view, dtype) -> None:
    """Few in memory, and few for a program of the second kernel, which has eight channels."""
    tiling = backward_tiling(view, dtype, 2, norm=False)
    if is_runs(view) and tiling.pattern != "runs":
        assert tiling.partial_sums <= MAX_SUMS_SHARE_OF_RUNS * math.prod(view)
        assert tiling.partial_sums <= MAX_SUMS_PER_CHANNEL * view.channels


@given(views, st.sampled_from(DTYPES))
def test_spans_are_no_longer_than_runs(view, dtype) -> None:
    tiling = forward_tiling(view, dtype)
    if tiling.pattern == "spans":
        tile = tiling.meta["TILE"]
        assert tile <= view.inner
        assert 2 * tile > view.inner or tile * dtype.itemsize == 4096


def elements_of_all_steps(tiling: Tiling) -> int:
    """With those outside of the tensor, which need a mask."""
    meta = tiling.meta
    if tiling.pattern == "spans":
        return tiling.groups * meta["TILE"]
    if tiling.pattern == "runs":  # of the forward pass
        return tiling.groups * meta["VECTORS"] * meta["VECTOR"]
    if tiling.pattern == "rows":
        return tiling.groups * meta["VECTORS"] * meta["VECTOR"] * tiling.steps * meta["ROWS"]
    return tiling.groups * meta["COLUMNS"] * tiling.steps * meta["REPEAT"] * meta["ROWS"]


@given(views, st.sampled_from(DTYPES))
def test_steps_need_no_mask_where_all_are_complete(view, dtype) -> None:
    forward, backward = forward_tiling(view, dtype), backward_tiling(view, dtype, 2, norm=False)
    for tiling in (forward, *([backward] if backward.pattern != "runs" else [])):
        assert tiling.meta["EVEN"] is (elements_of_all_steps(tiling) == math.prod(view))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("view", "rows"),  # that are merged, and leave the sums of one
    [
        (ChannelView(2**18, 128, 1), 1),
        (ChannelView(512, 100_001, 1), 64),
        (ChannelView(4096, 50_257, 1), 1),
        (ChannelView(256, 11_012, 1), 1),
        (ChannelView(256, 80, 49), 1),
        (ChannelView(256, 1024, 196), 1),
        (ChannelView(8, 2100, 1002), 1),
    ],
)
def test_partial_sums_are_a_small_part_of_a_tensor(view: ChannelView, rows: int, dtype) -> None:
    """Also with odd numbers of channels, for which many rows are merged."""
    partial_sums = backward_tiling(view, dtype, 2, norm=False).partial_sums
    assert partial_sums <= max(math.prod(view) * MAX_SUMS_SHARE, rows * view.channels * view.inner)
