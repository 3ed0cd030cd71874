"""The registry of activations, and APL against its formula."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from torch_srelu import SReLU, functional
from torch_srelu.lab.models.activation_registry import (
    ACTIVATIONS,
    APL,
    ActivationContext,
    activation,
    register,
)
from torch_srelu.lab.runtime.seeds import DropoutStream


def context(channels: int = 6, height: int = 5, width: int = 4, seed: int = 0) -> ActivationContext:
    stream = DropoutStream(seed, torch.device("cpu"))
    draws = torch.Generator().manual_seed(seed)
    return ActivationContext(channels, height, width, draws, stream=stream)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 6, 5, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_every_activation_keeps_the_shape_and_learns_all_its_parameters(name, x):
    module = ACTIVATIONS[name].build(context())
    assert ACTIVATIONS[name].is_srelu == isinstance(module, SReLU)
    y = module(x.requires_grad_())
    assert y.shape == x.shape
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    for parameter in module.parameters():
        assert parameter.grad is not None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("relu", F.relu),
        ("lrelu", lambda x: F.leaky_relu(x, 0.01)),
        ("prelu", lambda x: F.leaky_relu(x, 0.25)),
        ("srelu", lambda x: F.leaky_relu(x, 0.2)),
        ("srelu-shared", lambda x: F.leaky_relu(x, 0.2)),
        ("gelu", F.gelu),
        ("silu", F.silu),
    ],
)
def test_what_each_one_is_before_training(name, expected, x):
    assert torch.equal(activation(name).build(context())(x), expected(x))


def test_manual_srelu_starts_where_it_is_told(x):
    built = activation("srelu-manual").build(context(), t_r=0.5, a_l=0.0)
    constant = torch.ones(6)
    expected = functional.srelu(x, 0.5 * constant, constant, 0 * constant, 0 * constant)
    assert torch.equal(built(x), expected)
    assert not activation("srelu-manual").adapts


@pytest.mark.parametrize("per", ["channel", "neuron"])
@pytest.mark.parametrize("hinges", [1, 2, 5])
def test_apl_is_its_formula(x, per, hinges):
    module = activation("apl").build(context(), hinges=hinges, per=per)
    assert isinstance(module, APL)
    a, b, v = (t.detach().double().numpy() for t in (module.a, module.b, x))
    expected = np.maximum(v, 0)
    for s in range(hinges):
        expected = expected + a[s] * np.maximum(b[s] - v, 0)
    np.testing.assert_allclose(module(x).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_apl_draws_from_the_published_distributions():
    module = APL((10_000, 1, 1), 2, torch.Generator().manual_seed(0))
    assert module.a.min() >= -0.5
    assert module.a.max() <= 0.5
    assert module.a.std().item() == pytest.approx(1 / np.sqrt(12), rel=0.02)
    assert module.b.std().item() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("relu", {"slope": 0.1}, "relu has no options"),
        ("lrelu", {"slop": 0.1}, "did you mean 'slope'"),
        ("apl", {"hinges": 1.5}, "must be like its default 2"),
        ("apl", {"hinges": True}, "must be like its default 2"),
        ("lrelu", {"slope": "steep"}, "must be like its default 0.01"),
        ("lrelu", {"slope": float("nan")}, "must be finite, got nan"),
    ],
)
def test_wrong_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        activation(name).check(options)


def test_an_unknown_granularity_of_apl_is_refused():
    with pytest.raises(ValueError, match="choose one of channel, neuron"):
        activation("apl").build(context(), per="pixel")


def test_a_negative_number_of_hinges_is_refused(x):
    with pytest.raises(ValueError, match="hinges of apl must not be negative, got -1"):
        activation("apl").build(context(), hinges=-1)
    assert torch.equal(activation("apl").build(context(), hinges=0)(x), F.relu(x))


def test_a_new_activation_is_registered_with_a_function(monkeypatch, x):
    monkeypatch.setattr("torch_srelu.lab.models.activation_registry.ACTIVATIONS", dict(ACTIVATIONS))

    @register("elu-test")
    def _(context: ActivationContext, alpha: float = 1.0) -> torch.nn.Module:
        return torch.nn.ELU(alpha)

    assert activation("elu-test").options == {"alpha": 1.0}
    assert torch.equal(activation("elu-test").build(context(), alpha=2.0)(x), F.elu(x, 2.0))
