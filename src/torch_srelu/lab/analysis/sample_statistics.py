"""Statistics of small samples: mean, interval, paired test, correction, bootstrap.

Where the data cannot support a number (an interval of one value or of equal ones, a p-value of two
pairs) it is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

CONFIDENCE = 0.95
FEWEST_PAIRS = 3  # below this a paired difference has neither interval nor p
ROUNDING = 16 * float(np.finfo(np.float64).eps)  # deviations below this share count as 0

Interval = tuple[float, float]


@dataclass(frozen=True)
class SampleSummary:
    """n values: their mean, standard deviation (n - 1) and the 95 % interval of the mean (t)."""

    n: int
    mean: float
    std: float | None
    interval: Interval | None


@dataclass(frozen=True)
class PooledDeviation:
    """The standard deviation within samples, estimated from all of them together."""

    std: float
    degrees: int

    def interval(self, mean: float, *sizes: int) -> Interval:
        """95 % interval of a sample's mean, or of the difference of two samples' means.

        mean -+ t(degrees) * std * sqrt(1/n_1 + ...): one size for a mean, two for a difference.
        Assumes equal deviations and independence; paired seeds make it, if anything, wide.
        """
        return _around(mean, self.std * math.sqrt(sum(1 / n for n in sizes)), self.degrees)


@dataclass(frozen=True)
class PairedDifference(SampleSummary):
    """Differences over the same seeds, with the two-sided p of the paired test."""

    p: float | None


def summarise(values: Sequence[float] | np.ndarray) -> SampleSummary:
    """Mean, standard deviation and Student's 95 % interval.

    Example:
        >>> summarise([8.0, 9.0, 10.0]).mean
        9.0
        >>> summarise([8.0]).interval is None
        True
    """
    v = _finite(values)
    return _summary(v, scale=float(np.abs(v).max()))


def summarise_errors(percent: Sequence[float] | np.ndarray) -> SampleSummary:
    """`summarise` of error rates in percent, with the interval cut to 0 to 100 (`clip_percent`).

    Example:
        >>> low, high = summarise_errors([0.8, 1.6]).interval  # Student's is -3.88 to 6.28
        >>> low, round(high, 2)
        (0.0, 6.28)
    """
    s = summarise(percent)
    return replace(s, interval=clip_percent(s.interval))


def clip_percent(interval: Interval | None) -> Interval | None:
    """The part of an error rate's interval in [0, 100]: Student's has no bounds.

    With few seeds an interval may reach below 0 or above 100. What is cut off holds no error rate:
    the coverage stays. Differences are not cut: they may be negative.

    Example:
        >>> clip_percent((-3.9, 6.3)), clip_percent((97.0, 101.5)), clip_percent(None)
        ((0.0, 6.3), (97.0, 100.0), None)
    """
    return interval and (max(0.0, interval[0]), min(100.0, interval[1]))


def pool(samples: Sequence[Sequence[float]]) -> PooledDeviation | None:
    """Pooled deviation: sqrt(sum of squares within samples / sum of (n_i - 1)).

    None if no sample has two different values.

    Example:
        >>> pool([[1.0, 3.0], [10.0, 12.0, 14.0], [5.0]])
        PooledDeviation(std=1.8257418583505538, degrees=3)
    """
    spread = [(len(v) - 1, summarise(v).std or 0.0) for v in samples if len(v) > 1]
    degrees = sum(n for n, _ in spread)
    if not degrees:
        return None
    std = math.sqrt(sum(n * s**2 for n, s in spread) / degrees)
    return PooledDeviation(std, degrees) if std else None


def paired(values: Sequence[float], baseline: Sequence[float]) -> PairedDifference:
    """Student's paired test of ``values - baseline``, seed by seed.

    Interval and p-value are None below three pairs, and where all differences are equal.

    Example:
        >>> paired([8.0, 9.0, 9.5], [9.0, 10.5, 10.0]).mean
        -1.0
        >>> two = paired([8.0, 9.0], [9.0, 10.5])
        >>> two.interval, two.p
        (None, None)
    """
    a, b = _finite(values), _finite(baseline)
    s = _summary(a - b, scale=float(max(np.abs(a).max(), np.abs(b).max())))
    if not s.std or s.n < FEWEST_PAIRS:
        return PairedDifference(s.n, s.mean, s.std, None, None)
    t = s.mean / (s.std / math.sqrt(s.n))
    p = 2 * float(special.stdtr(s.n - 1, -abs(t)))
    return PairedDifference(s.n, s.mean, s.std, s.interval, p)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction: the i-th smallest of m times (m - i + 1), kept ascending, at most 1.

    A None (no test was possible) stays None and does not count as a test.

    Example:
        >>> holm([0.01, None, 0.04, 0.03])
        [0.03, None, 0.06, 0.06]
    """
    tests = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, i) in enumerate(tests):
        highest = max(highest, min(1.0, (len(tests) - rank) * p))
        corrected[i] = highest
    return corrected


def bootstrap(wrong: np.ndarray, baseline_wrong: np.ndarray) -> Interval:
    """95 % interval of the difference of two error rates, over the choice of test images.

    As if the images were resampled, with replacement, infinitely often; an image keeps its outcomes
    of all seeds and of both rivals. This is the uncertainty of the test set, with the seeds fixed.

    Args:
        wrong: Whether each image was misclassified, boolean (seeds, images).
        baseline_wrong: The same of the baseline, for the same seeds and images.

    Returns:
        The 2.5th and 97.5th percentile of the resampled difference, as a fraction of the images.

    Example:
        >>> import numpy as np
        >>> wrong = np.array([[True, False, False, False]])
        >>> bootstrap(wrong, wrong)
        (0.0, 0.0)
    """
    seeds, images = wrong.shape
    score = wrong.sum(0, dtype=np.int64) - baseline_wrong.sum(0, dtype=np.int64)  # (images,)
    least = int(score.min())
    # Few scores exist, so nothing is drawn: the sum over resampled images has the distribution of
    # one image's score, convolved with itself as often as there are images.
    size = 1 << (images * (int(score.max()) - least)).bit_length()  # a power of 2 above it
    one = np.bincount(score - least, minlength=size) / images
    below = np.cumsum(np.fft.irfft(np.fft.rfft(one) ** images, n=size))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.searchsorted(below, [tail, 1 - tail]) + images * least
    return float(low / (seeds * images)), float(high / (seeds * images))


def _summary(v: np.ndarray, scale: float) -> SampleSummary:
    """`SampleSummary` of values that were computed from numbers as large as ``scale``."""
    n, mean = len(v), float(v.mean())
    if n < 2:
        return SampleSummary(n, mean, None, None)
    std = float(v.std(ddof=1))
    if std <= ROUNDING * scale:  # 0.3 - 0.2 is not quite 0.2 - 0.1
        return SampleSummary(n, mean, 0.0, None)
    return SampleSummary(n, mean, std, _around(mean, std / math.sqrt(n), n - 1))


def _around(mean: float, standard_error: float, degrees: int) -> Interval:
    half = float(special.stdtrit(degrees, 0.5 + CONFIDENCE / 2)) * standard_error
    return mean - half, mean + half


def _finite(values: Sequence[float] | np.ndarray) -> np.ndarray:
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 1 or not v.size:
        raise ValueError(f"expected a list of at least one number, got shape {v.shape}")
    if not np.isfinite(v).all():
        raise ValueError(
            f"expected finite numbers, got {v.tolist()}: leave out the runs that diverged and count"
            " them apart"
        )
    return v
