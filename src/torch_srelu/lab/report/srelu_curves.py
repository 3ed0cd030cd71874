"""SReLU as a curve to draw: its values, and the points between which it is linear."""

from __future__ import annotations

import numpy as np
import torch

from ...ops import reference


def srelu(x: np.ndarray, t_r: float, a_r: float, t_l: float, a_l: float) -> np.ndarray:
    """SReLU of ``x``, in float64.

    Example:
        >>> srelu(np.array([-2.0, 0.5, 3.0]), t_r=1, a_r=0.5, t_l=-1, a_l=0.5).tolist()
        [-1.5, 0.5, 2.0]
    """
    parameters = (torch.tensor([p], dtype=torch.float64) for p in (t_r, a_r, t_l, a_l))
    return reference.srelu(torch.as_tensor(x, dtype=torch.float64), *parameters, dim=0).numpy()


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
    p = torch.as_tensor(np.asarray(parameters, dtype=np.float64))
    ends = torch.tensor([low, high], dtype=torch.float64)[:, None].expand(2, p.shape[1])
    x = torch.cat([ends, p[0:1], p[2:3]]).sort(dim=0).values  # (4, N)
    return x.numpy(), reference.srelu(x, *p, dim=1).numpy()
