"""The rules by which tensors are cut up: what no tensor may be cut to, however it is shaped."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("triton")

from torch_srelu.ops.layout import View
from torch_srelu.ops.triton.triton_backend import fuses_batch_norm
from torch_srelu.ops.triton.triton_tiling import (
    MOST_IN_LAYER,
    MOST_PARTS,
    MOST_SUMS,
    MOST_SUMS_OF_RUNS,
    Cut,
    cut_backward,
    cut_forward,
    grid,
    is_runs,
)

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
SIZES = st.integers(1, 2**30)
# Sizes of any magnitude, multiples of many powers of two among them.
views = st.builds(
    View,
    *(st.builds(lambda n, k: max(1, n >> k), SIZES, st.integers(0, 30)) for _ in range(3)),
).filter(lambda view: math.prod(view) <= 2**40)


@given(views, st.sampled_from(DTYPES), st.sampled_from([(2, False), (3, False), (4, True)]))
def test_all_programs_of_a_backward_pass_have_sums_to_write(view, dtype, read) -> None:
    """One layer of a grid has no programs beyond `Cut.splits`, which would write past them."""
    how = cut_backward(view, dtype, *read)
    assert how.splits <= MOST_IN_LAYER
    assert grid(how) == (how.groups, how.splits, 1)
    assert how.splits <= how.steps
    assert how.sums % (view.channels * how.beside) == 0


@given(views, st.sampled_from(DTYPES))
def test_grids_fit_the_device(view, dtype) -> None:
    groups, high, layers = grid(cut_forward(view, dtype))
    assert groups < 2**31
    assert max(high, layers) <= MOST_IN_LAYER


@given(views, st.sampled_from(DTYPES))
@example(View(1, 2**21 + 4096, 1023), torch.bfloat16)
def test_joined_normalisations_find_columns(view, dtype) -> None:
    if fuses_batch_norm(view):
        assert cut_backward(view, dtype, 4, norm=True).way == "columns"


@given(views, st.sampled_from(DTYPES))
@example(View(16, 2**28 - 1, 1), torch.bfloat16)
def test_steps_reach_no_further_than_32_bits_and_their_masks(view, dtype) -> None:
    """`triton_tiles._rest` says of 2**31 - 16 elements at most that they are there."""
    cuts = (cut_forward(view, dtype), cut_backward(view, dtype, 2, norm=False))
    for meta, (_, columns, *_) in ((c.meta, c.sizes) for c in cuts if c.way == "columns"):
        assert meta["REPEAT"] * meta["ROWS"] * columns <= 2**31 - 16


@given(views, st.sampled_from(DTYPES))
def test_runs_are_cut_to_rows_or_columns_where_these_leave_few_sums(view, dtype) -> None:
    """Few in memory, and few for a program of the second kernel, which has eight channels."""
    how = cut_backward(view, dtype, 2, norm=False)
    if is_runs(view) and how.way != "runs":
        assert how.sums <= MOST_SUMS_OF_RUNS * math.prod(view)
        assert how.sums <= MOST_PARTS * view.channels


@given(views, st.sampled_from(DTYPES))
def test_spans_are_no_longer_than_runs(view, dtype) -> None:
    how = cut_forward(view, dtype)
    if how.way == "spans":
        tile = how.meta["TILE"]
        assert tile <= view.inner
        assert 2 * tile > view.inner or tile * dtype.itemsize == 4096


def elements_of_all_steps(how: Cut) -> int:
    """Those outside of the tensor, which need a mask, included."""
    meta = how.meta
    if how.way == "spans":
        return how.groups * meta["TILE"]
    if how.way == "runs":  # of the forward pass
        return how.groups * meta["LANES"] * meta["VECTOR"]
    if how.way == "rows":
        return how.groups * meta["LANES"] * meta["VECTOR"] * how.steps * meta["ROWS"]
    return how.groups * meta["COLUMNS"] * how.steps * meta["REPEAT"] * meta["ROWS"]


@given(views, st.sampled_from(DTYPES))
def test_steps_need_no_mask_where_all_are_complete(view, dtype) -> None:
    forward, backward = cut_forward(view, dtype), cut_backward(view, dtype, 2, norm=False)
    for how in (forward, *([backward] if backward.way != "runs" else [])):
        assert how.meta["EVEN"] is (elements_of_all_steps(how) == math.prod(view))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("view", "rows"),  # that must be one, so that they leave sums like a row
    [
        (View(2**18, 128, 1), 1),
        (View(512, 100_001, 1), 64),
        (View(4096, 50_257, 1), 1),
        (View(256, 11_012, 1), 1),
        (View(256, 80, 49), 1),
        (View(256, 1024, 196), 1),
        (View(8, 2100, 1002), 1),
    ],
)
def test_partial_sums_are_a_small_part_of_a_tensor(view: View, rows: int, dtype) -> None:
    """Also of odd numbers of channels, for which many rows are taken as one."""
    sums = cut_backward(view, dtype, 2, norm=False).sums
    assert sums <= max(math.prod(view) * MOST_SUMS, rows * view.channels * view.inner)
