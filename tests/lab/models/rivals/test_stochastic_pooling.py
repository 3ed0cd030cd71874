"""Stochastic pooling against its definition: draws, expectation, borders, zeros, refusals."""

import pytest
import torch
from scipy.stats import chisquare
from streams import stream

from torch_srelu.lab.models.activation_registry import ACTIVATIONS
from torch_srelu.lab.models.rivals.stochastic_pooling import NETWORKS, StochasticPool2d


def windows(image: torch.Tensor, window: int, stride: int) -> list[list[torch.Tensor]]:
    """The values of each window of (H, W), cut at the border."""
    height, width = image.shape
    rows = range(0, height - window + stride, stride)
    columns = range(0, width - window + stride, stride)
    return [[image[i : i + window, j : j + window].flatten() for j in columns] for i in rows]


@pytest.mark.parametrize(("size", "window", "stride"), [(7, 3, 2), (8, 3, 2), (6, 2, 2)])
def test_the_test_form_is_the_expectation_of_the_definition(size, window, stride):
    image = torch.rand(size, size + 1, dtype=torch.float64)
    image[:3, :3] = 0  # one window has nothing but zeros
    expected = torch.stack(
        [
            torch.stack([(v * v).sum() / v.sum() if v.sum() else v.sum() for v in row])
            for row in windows(image, window, stride)
        ]
    )
    pooled = StochasticPool2d(window, stride).eval()(image[None, None])
    torch.testing.assert_close(pooled[0, 0], expected)
    assert pooled[0, 0, 0, 0] == 0


def test_the_mean_of_draws_is_the_test_form():
    torch.manual_seed(0)
    image = torch.rand(1, 2, 5, 6)
    pool, repeated = StochasticPool2d(3, 2, stream()), image.expand(20_000, 2, 5, 6)
    drawn = pool(repeated)
    error = drawn.std(0) / len(repeated) ** 0.5
    assert ((drawn.mean(0) - pool.eval()(image)[0]).abs() < 4 * error).all()


def test_draws_have_the_frequencies_of_the_values_and_stay_inside():
    image = torch.tensor([[1.0, 0.0, 2.0], [0.0, 4.0, 0.0], [0.0, 0.0, 3.0]])
    drawn = StochasticPool2d(3, 2, stream())(image.expand(40_000, 1, 3, 3)).flatten()
    values = [1.0, 2.0, 3.0, 4.0]
    found = [(drawn == v).sum().item() for v in values]
    assert sum(found) == len(drawn)
    assert chisquare(found, [len(drawn) * v / 10 for v in values]).pvalue > 0.01


def test_cut_windows_draw_real_values_only():
    pool = StochasticPool2d(3, 2, stream())
    drawn = pool(torch.rand(50, 4, 8, 8) + 1)
    assert drawn.shape == (50, 4, 4, 4)
    assert (drawn >= 1).all()


def test_a_window_of_zeros_gives_zero_and_no_nan():
    x = torch.zeros(2, 1, 6, 6, requires_grad=True)
    for pool in (StochasticPool2d(3, 2, stream()), StochasticPool2d(3, 2).eval()):
        y = pool(x)
        assert torch.equal(y, torch.zeros_like(y))
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert grad.isfinite().all()


def test_the_drawn_value_learns():
    x = torch.rand(3, 2, 6, 6, requires_grad=True)
    y = StochasticPool2d(2, 2, stream())(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.unique(), torch.tensor([0.0, 1.0]))
    torch.testing.assert_close((x.grad * x).sum(), y.sum())


def test_negative_values_are_refused():
    for pool in (StochasticPool2d(2, 2, stream()), StochasticPool2d(2, 2).eval()):
        with pytest.raises(ValueError, match=r"down to -0\.5\): let ReLU come before"):
            pool(torch.tensor([[[[1.0, -0.5], [2.0, 0.0]]]]))


@pytest.mark.parametrize("act", [name for name in ACTIVATIONS if name != "relu"])
def test_an_activation_that_goes_negative_is_refused(act):
    with pytest.raises(ValueError, match=f"{act} can give negative values; choose relu"):
        NETWORKS["stochastic-pooling-mnist"].build(act)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_networks_halve_three_times(name):
    spec = NETWORKS[name]
    net, sizes = spec.build("relu").eval(), []
    for module in net.children():
        if isinstance(module, StochasticPool2d):
            module.register_forward_hook(lambda _m, _i, out: sizes.append(tuple(out.shape[1:])))
    logits = net(torch.rand(2, spec.channels, spec.size, spec.size))
    assert logits.shape == (2, spec.classes)
    assert sizes == [(64, s, s) for s in ((16, 8, 4) if spec.size == 32 else (14, 7, 3))]
