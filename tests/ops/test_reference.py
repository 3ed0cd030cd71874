"""The definition against the paper's equations, in exact arithmetic."""

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st

from torch_srelu.ops import reference

NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False, width=32)


def unit(x, t_r: float, a_r: float, t_l: float, a_l: float, dtype=torch.float64) -> torch.Tensor:
    values = [torch.tensor([v], dtype=dtype) for v in (t_r, a_r, t_l, a_l)]
    return reference.srelu(torch.as_tensor(x, dtype=dtype), *values, 0)


def equation_7(x: Fraction, t_r: Fraction, a_r: Fraction, t_l: Fraction, a_l: Fraction) -> Fraction:
    """The paper's three cases, in its order, exactly."""
    if x >= t_r:
        return t_r + a_r * (x - t_r)
    if x > t_l:
        return x
    return t_l + a_l * (x - t_l)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_is_equation_7_where_thresholds_are_in_order(x, t_r, a_r, t_l, a_l) -> None:
    assume(t_l < t_r)
    exact = equation_7(*map(Fraction, (x, t_r, a_r, t_l, a_l)))
    scale = float(max(1, abs(x * a_r), abs(t_r * a_r), abs(x * a_l), abs(t_l * a_l)))
    assert abs(Fraction(unit(x, t_r, a_r, t_l, a_l).item()) - exact) <= 1e-14 * scale + 1e-15


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_is_continuous_at_both_thresholds(t_r, a_r, t_l, a_l) -> None:
    """Also where they are crossed, and where the paper's cases would jump."""
    for t in (t_r, t_l):
        around = torch.tensor([t, t], dtype=torch.float64)
        around[0] = torch.nextafter(around[0], torch.tensor(-torch.inf, dtype=torch.float64))
        low, at = unit(around, t_r, a_r, t_l, a_l)
        slope = 1 + abs(a_r) + abs(a_l)
        assert abs(low - at) <= 1e-12 * slope * (1 + abs(t_r) + abs(t_l))


def test_gradients_at_ties_are_those_of_the_tails() -> None:
    """Eq. 9 and 10: on a threshold the indicator is 1."""
    x = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    t_r, a_r, t_l, a_l = (torch.tensor([v], dtype=torch.float64) for v in (2.0, 0.3, -1.0, 0.7))
    grads = reference.srelu_backward(torch.ones_like(x), x, t_r, a_r, t_l, a_l, 0)
    assert grads[0].tolist() == [0.3, 0.7, 1.0]
    assert [g.item() for g in grads[1:]] == pytest.approx([1 - 0.3, 0.0, 1 - 0.7, 0.0])


def test_is_accurate_in_the_tails() -> None:
    x = torch.tensor([1e6, 1e8, -1e6, -1e8])
    assert unit(x, 0.7, 0.0, -0.3, 0.0, torch.float32).tolist() == pytest.approx(
        [0.7, 0.7, -0.3, -0.3]
    )
    assert torch.equal(unit(x, 0.7, 0.0, -0.3, 0.0, torch.float32)[:2], torch.tensor([0.7, 0.7]))


X = torch.cat([torch.linspace(-9, 9, 1001), torch.tensor([0.0, -0.0, 6.0, -1.0, 1.0, 1e30, -1e30])])
SPECIAL_CASES = {
    "relu": ((1.0, 1.0, 0.0, 0.0), F.relu),
    "leaky relu": ((1.0, 1.0, 0.0, 0.2), lambda x: F.leaky_relu(x, 0.2)),
    "prelu": ((1.0, 1.0, 0.0, 0.37), lambda x: F.prelu(x, torch.tensor([0.37]))),
    "relu6": ((6.0, 0.0, 0.0, 0.0), F.relu6),
    "hardtanh": ((1.0, 0.0, -1.0, 0.0), F.hardtanh),
    "identity": ((0.5, 1.0, -0.5, 1.0), lambda x: x),
    "absolute value": ((1.0, 1.0, 0.0, -1.0), torch.abs),
}


@pytest.mark.parametrize("name", SPECIAL_CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_special_cases_to_the_bit(name: str, dtype: torch.dtype) -> None:
    params, function = SPECIAL_CASES[name]
    x = X.to(dtype)
    x = x[x.isfinite()]  # 1e30 is no float16
    if name == "prelu":  # torch wants its weight in the dtype of the input, which rounds it
        params = (*params[:3], float(torch.tensor(params[3], dtype=dtype)))
        expected = F.prelu(x, torch.tensor(params[3:], dtype=dtype))
    else:
        expected = function(x)
    tensors = [
        torch.tensor([v], dtype=torch.float64 if dtype == torch.float64 else torch.float32)
        for v in params
    ]
    assert torch.equal(reference.srelu(x, *tensors, 0), expected)


@given(t=st.floats(-1e6, 1e6, width=32))
def test_with_unit_right_slope_the_right_threshold_changes_no_bit(t: float) -> None:
    """So setting t_r at the end of the freeze leaves the network's function untouched."""
    for dtype in (torch.float32, torch.bfloat16):
        x = X.to(dtype)
        frozen = reference.srelu(x, *(torch.tensor([v]) for v in (t, 1.0, 0.0, 0.2)), 0)
        assert torch.equal(frozen, F.leaky_relu(x, 0.2))


def test_nan_and_infinity() -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf])
    assert unit(x, 1.0, 1.0, 0.0, 0.0)[0].isnan()
    assert unit(x, 1.0, 1.0, 0.0, 0.0)[1:].tolist() == [torch.inf, 0.0]  # ReLU of -inf is 0
    assert unit(x, 6.0, 0.0, 0.0, 0.0)[1:].tolist() == [6.0, 0.0]
    assert unit(x, 1.0, -2.0, 0.0, 0.5)[1:].tolist() == [-torch.inf, -torch.inf]


def test_a_zero_slope_still_learns() -> None:
    """The flat tail of a converted ReLU has a gradient for its slope, also through autograd."""
    x = torch.tensor([-2.0, 3.0], dtype=torch.float64)
    params = [
        torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (1.0, 0.0, 0.0, 0.0)
    ]
    reference.srelu(x, *params, 0).sum().backward()
    assert [p.grad.item() for p in params if p.grad is not None] == [1.0, 2.0, 1.0, -2.0]
