"""The paper's figures: their curves are the functions they name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from scipy.special import xlogy

from torch_srelu import SReLU
from torch_srelu.lab.paper.figures.drawing import FORMATS
from torch_srelu.lab.paper.figures.figure_list import FROM_FORMULAS, draw
from torch_srelu.lab.report import srelu_curves

HEADS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def lines(axes: Axes) -> list[tuple[np.ndarray, np.ndarray]]:
    """The drawn curves of a panel, without its marks of thresholds."""
    drawn = (line.get_xydata() for line in axes.get_lines())
    return [(xy[:, 0], xy[:, 1]) for xy in map(np.asarray, drawn) if len(xy) > 2]


def test_figure1_shows_laws_and_their_imitations() -> None:
    weber, stevens, concave, convex = FROM_FORMULAS["figure1"]().axes
    for k, (p, s) in zip((0.5, 1.0, 1.5), lines(weber), strict=True):
        np.testing.assert_allclose(p * s, k * xlogy(p, p), atol=1e-12)  # s = k log p
    for e, (p, s) in zip((0.5, 1.0, 1.6, 3.0), lines(stevens), strict=True):
        np.testing.assert_allclose(np.log(s), e * np.log(p), atol=1e-9)  # s = p^e
    for axes, sign in ((concave, -1), (convex, 1)):
        for x, y in lines(axes):
            right = x > 0
            assert (sign * np.diff(y[right], 2) >= -1e-9).all()  # bends one way only
            np.testing.assert_allclose(y, -y[::-1], atol=1e-12)  # mirrored in the negative part
            middle = np.abs(x) <= 1
            np.testing.assert_allclose(y[middle], x[middle], atol=1e-12)


def test_figure2_shows_the_family() -> None:
    panels = {axes.get_title(): lines(axes) for axes in FROM_FORMULAS["figure2"]().axes}
    x, relu = panels["ReLU"][0]
    np.testing.assert_array_equal(relu, np.maximum(x, 0))
    np.testing.assert_allclose(panels["LReLU"][0][1], np.where(x > 0, x, 0.1 * x))
    _, apl = panels["APL"][0]
    right = x > 0.6 + 1e-9
    np.testing.assert_allclose(apl[right], x[right])  # what the paper holds against APL
    outline, *parts = panels["maxout"]
    np.testing.assert_allclose(outline[1], np.max([y for _, y in parts], axis=0))
    _, srelu = panels["SReLU"][0]
    unit = SReLU(1, t_r=1.2, a_r=0.35, t_l=-1.0, a_l=0.15, dtype=torch.float64)
    np.testing.assert_allclose(srelu, unit(torch.from_numpy(x)).detach().numpy(), atol=1e-7)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_kind_of_file(kind: str) -> None:
    data = draw("figure2", kind)
    assert data.startswith(HEADS[kind])
    assert data == draw("figure2", kind)  # the same figure is the same file


def test_knots_are_the_whole_function() -> None:
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=(4, 50))  # half of them crossed
    x, y = srelu_curves.knots(parameters, low=-5, high=5)
    assert (np.diff(x, axis=0) >= 0).all()
    between = rng.uniform(-5, 5, size=(50, 20))
    for c in range(50):
        joined = np.interp(between[c], x[:, c], y[:, c])
        exact = srelu_curves.srelu(between[c], *map(float, parameters[:, c]))
        np.testing.assert_allclose(joined, exact, atol=1e-12)
