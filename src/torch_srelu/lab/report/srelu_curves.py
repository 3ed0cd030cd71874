"""SReLU as a curve to draw: its values, and the points between which it is linear."""

from __future__ import annotations

import numpy as np
import torch

from ...ops import reference


def srelu(x: np.ndarray, *parameters: float | np.ndarray) -> np.ndarray:
    """SReLU of ``x``, in float64, with t_r, a_r, t_l, a_l: numbers, or one for each column.

    Example:
        >>> srelu(np.array([-2.0, 0.5, 3.0]), 1, 0.5, -1, 0.5).tolist()
        [-1.5, 0.5, 2.0]
    """
    values, *of = (torch.as_tensor(v, dtype=torch.float64) for v in (x, *parameters))
    return reference.srelu(values, *(p.reshape(-1) for p in of), dim=x.ndim - 1).numpy()


def knots(parameters: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """The four points that, joined by straight lines, are SReLU on [low, high].

    Args:
        parameters: (4, N): t_r, a_r, t_l, a_l of N channels.
        low: Left end of the view.
        high: Right end of the view.

    Returns:
        x and y, (4, N) each: both ends and both thresholds from left to right, wherever the
        thresholds lie; crossed ones too.

    Example:
        >>> x, y = knots(np.array([[1.0], [0.5], [-1.0], [0.0]]), low=-3, high=3)
        >>> x[:, 0].tolist(), y[:, 0].tolist()
        ([-3.0, -1.0, 1.0, 3.0], [-1.0, -1.0, 1.0, 2.0])
    """
    ends = np.full((parameters.shape[1], 2), (low, high)).T
    x = np.sort(np.concatenate([ends, parameters[[0, 2]]]), axis=0)  # (4, N)
    return x, srelu(x, *parameters)
