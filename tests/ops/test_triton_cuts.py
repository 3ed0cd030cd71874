"""The rules by which tensors are cut up: what no tensor may be cut to, however it is shaped."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from torch_srelu.ops.layout import View
from torch_srelu.ops.triton_cuts import MOST_IN_LAYER, MOST_SUMS, cut_backward, cut_forward, grid

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
