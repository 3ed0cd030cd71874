"""Statistics against scipy.stats, sums by hand and direct resampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from torch_srelu.lab.analysis import sample_statistics

ERRORS = [9.67, 9.75, 9.12, 10.04]
RIVAL = [8.41, 8.95, 8.61, 8.77]

decimals = st.floats(-100, 100).map(lambda x: round(x, 6))
values = st.lists(decimals, min_size=2, max_size=12)


@settings(max_examples=50, deadline=None)
@given(values)
def test_interval_is_students(v: list[float]) -> None:
    s = sample_statistics.summarise(v)
    assert s.std == pytest.approx(np.std(v, ddof=1), abs=1e-12)
    half = stats.t.ppf(0.975, len(v) - 1) * np.std(v, ddof=1) / np.sqrt(len(v))
    expected = (np.mean(v) - half, np.mean(v) + half)
    assert s.interval == (None if len(set(v)) == 1 else pytest.approx(expected, abs=1e-9))


def test_interval_by_hand() -> None:
    # mean 9, s = 1, t(2, 0.975) = 4.302653 from any printed table, 4.302653 / sqrt(3) = 2.484138
    s = sample_statistics.summarise([8.0, 9.0, 10.0])
    assert (s.n, s.mean, s.std) == (3, 9.0, 1.0)
    assert s.interval == pytest.approx((6.515862, 11.484138), abs=1e-6)


def test_one_value_has_no_spread() -> None:
    assert sample_statistics.summarise([8.41]) == sample_statistics.SampleSummary(
        1, 8.41, None, None
    )


def test_equal_values_have_no_interval() -> None:
    s = sample_statistics.summarise([0.1, 0.1, 0.1])  # their computed mean is not 0.1
    assert (s.std, s.interval) == (0.0, None)


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [1.0, float("inf")]])
def test_what_cannot_be_averaged_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        sample_statistics.summarise(bad)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 100).map(lambda x: round(x, 6)), min_size=2, max_size=4))
def test_interval_of_errors_is_students_within_percent(v: list[float]) -> None:
    free, cut = sample_statistics.summarise(v), sample_statistics.summarise_errors(v)
    assert (cut.n, cut.mean, cut.std) == (free.n, free.mean, free.std)
    expected = None if free.interval is None else tuple(np.clip(free.interval, 0, 100))
    assert cut.interval == expected


def test_paired_test_is_students() -> None:
    ours, expected = sample_statistics.paired(RIVAL, ERRORS), stats.ttest_rel(RIVAL, ERRORS)
    assert ours.p == pytest.approx(expected.pvalue, rel=1e-10)
    interval = expected.confidence_interval(0.95)
    assert ours.interval == pytest.approx((interval.low, interval.high), rel=1e-10)
    assert ours.mean == pytest.approx(np.mean(RIVAL) - np.mean(ERRORS))


def test_no_p_value_below_three_pairs() -> None:
    assert sample_statistics.paired(RIVAL[:2], ERRORS[:2]).p is None
    assert sample_statistics.paired(RIVAL[:3], ERRORS[:3]).p is not None


def test_no_p_value_without_spread() -> None:
    equal = sample_statistics.paired([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])
    assert (equal.std, equal.interval, equal.p) == (0.0, None, None)  # equal but for rounding
    assert sample_statistics.paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).p is None


def test_holm_by_hand() -> None:
    # Holm 1979: sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 and never falling.
    assert sample_statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx(
        [0.03, 0.06, 0.06, 0.02]
    )
    assert sample_statistics.holm([None, 0.02]) == [None, 0.02]
    assert sample_statistics.holm([0.9, 0.8]) == [1.0, 1.0]
    assert sample_statistics.holm([]) == []


def test_pooled_deviation_is_that_of_analysis_of_variance() -> None:
    cells = [ERRORS, RIVAL, [10.5, 10.9]]
    pooled = sample_statistics.pool([*cells, [7.0]])  # one value has nothing to say about spread
    assert pooled is not None
    assert pooled.degrees == 3 + 3 + 1
    within = sum(np.var(cell) * len(cell) for cell in cells)
    between = sum(len(c) * (np.mean(c) - np.mean(np.concatenate(cells))) ** 2 for c in cells)
    f = (between / 2) / pooled.std**2
    assert pooled.std**2 == pytest.approx(within / 7)
    assert f == pytest.approx(stats.f_oneway(*cells).statistic)


def test_pooled_interval_of_two_samples_is_students() -> None:
    pooled = sample_statistics.pool([RIVAL, ERRORS])
    assert pooled is not None
    expected = stats.ttest_ind(RIVAL, ERRORS).confidence_interval(0.95)
    difference = float(np.mean(RIVAL) - np.mean(ERRORS))
    assert pooled.interval(difference, 4, 4) == pytest.approx((expected.low, expected.high))


def test_nothing_to_pool() -> None:
    assert sample_statistics.pool([[1.0], [2.0]]) is None
    assert sample_statistics.pool([[1.0, 1.0], [2.0, 2.0]]) is None


def test_bootstrap_is_that_of_resampled_images() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((3, 400)) < 0.08, rng.random((3, 400)) < 0.12
    draws = rng.integers(400, size=(10_000, 400))  # the plain way: draw images, average again
    rates = (a.mean(0) - b.mean(0))[draws].mean(1)
    expected = np.percentile(rates, [2.5, 97.5])
    assert sample_statistics.bootstrap(a, b) == pytest.approx(expected, abs=0.0015)


def test_bootstrap_is_exact() -> None:
    """Of one image in four wrong, the number that are wrong among four drawn is binomial."""
    wrong = np.array([[True, False, False, False]])
    low, high = sample_statistics.bootstrap(wrong, np.zeros_like(wrong))
    assert (4 * low, 4 * high) == stats.binom(4, 0.25).interval(0.95)
    many = np.arange(10_000)[None] < 1_000
    low, high = sample_statistics.bootstrap(np.zeros_like(many), many)
    expected = stats.binom(10_000, 0.1).interval(0.95)
    assert (-10_000 * high, -10_000 * low) == pytest.approx(expected, abs=1.01)  # the other tail


def test_bootstrap_keeps_images_together() -> None:
    a = np.zeros((2, 100), dtype=bool)
    a[:, :30] = True
    assert sample_statistics.bootstrap(a, a) == (0.0, 0.0)  # the same images wrong: no uncertainty
    assert sample_statistics.bootstrap(a, ~a)[0] < -0.4 < sample_statistics.bootstrap(a, ~a)[1]
