"""The layer: its parameters, its repr, its state, its lazy twin."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from torch_srelu import LazySReLU, SReLU
from torch_srelu.module import NAMES


def test_starts_as_the_papers_leaky_relu() -> None:
    unit = SReLU(4)
    start = {name: getattr(unit, name).tolist() for name in NAMES}
    assert start == {
        "t_r": [1.0] * 4,
        "a_r": [1.0] * 4,
        "t_l": [0.0] * 4,
        "a_l": pytest.approx([0.2] * 4),
    }
    x = torch.randn(3, 4, 5, 5)
    assert torch.equal(unit(x), F.leaky_relu(x, 0.2))


def test_parameters_are_four_vectors_with_the_papers_names() -> None:
    unit = SReLU(7, dim=-1, t_r=2.0, a_r=0.5, t_l=-1.0, a_l=0.1, dtype=torch.float64, device="cpu")
    assert [name for name, _ in unit.named_parameters()] == ["t_r", "a_r", "t_l", "a_l"]
    assert all(p.shape == (7,) and p.dtype == torch.float64 for p in unit.parameters())
    assert unit.t_r[0].item() == 2.0


def test_reset_parameters() -> None:
    unit = SReLU(3, a_l=0.3)
    before = copy.deepcopy(unit.state_dict())
    with torch.no_grad():
        for p in unit.parameters():
            p.add_(1.0)
    unit.reset_parameters()
    assert all(torch.equal(before[k], v) for k, v in unit.state_dict().items())


def test_tensors_are_the_attributes() -> None:
    unit, x = SReLU(3, a_l=0.3), torch.randn(2, 3)
    del unit.t_r
    unit.t_r = nn.Parameter(torch.full((3,), 0.5))  # no longer the first that was registered
    assert all(t is getattr(unit, n) for t, n in zip(unit.tensors(), NAMES, strict=True))
    y = torch.func.functional_call(unit, {"a_l": torch.zeros(3)}, x)
    assert torch.equal(y, x.clamp(min=0))
    parametrize.register_parametrization(unit, "a_l", nn.Softplus())
    assert torch.equal(unit.tensors()[3], F.softplus(unit.parametrizations.a_l.original))


def test_repr() -> None:
    assert repr(SReLU(64)) == "SReLU(64, dim=1)"
    assert repr(SReLU(64, dim=-1)) == "SReLU(64, dim=-1)"
    assert repr(SReLU(1)) == "SReLU(1, channel-shared)"


def test_shared_takes_scalars_and_vectors() -> None:
    unit = SReLU(1)
    assert unit(torch.tensor(-1.0)).item() == pytest.approx(-0.2)
    assert unit(torch.tensor([-1.0, 2.0])).tolist() == pytest.approx([-0.2, 2.0])


def test_channels_in_the_last_dim() -> None:
    unit = SReLU(6, dim=-1)
    with torch.no_grad():
        unit.a_l.copy_(torch.arange(6.0))
    assert unit(-torch.ones(2, 5, 6))[0, 0].tolist() == [-0.0, -1.0, -2.0, -3.0, -4.0, -5.0]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0,), {}, ValueError, "num_channels must be at least 1, got 0"),
        ((2.0,), {}, TypeError, "num_channels must be an int, got float"),
        ((True,), {}, TypeError, "num_channels must be an int, got bool"),
        ((3, "1"), {}, TypeError, "dim must be an int, got str"),
        ((3,), {"a_l": torch.zeros(3)}, TypeError, "a_l must be a number, got Tensor"),
        ((3,), {"t_r": float("inf")}, ValueError, "t_r must be finite, got inf"),
    ],
)
def test_bad_arguments(arguments, options, error, message: str) -> None:
    with pytest.raises(error, match=message):
        SReLU(*arguments, **options)


def test_state_dict_round_trip() -> None:
    unit = SReLU(3)
    with torch.no_grad():
        unit.t_r.copy_(torch.tensor([1.0, 2.0, 3.0]))
    file = io.BytesIO()
    torch.save(unit.state_dict(), file)
    file.seek(0)
    other = SReLU(3)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other.t_r, unit.t_r)
    assert unit.state_dict()._metadata[""]["version"] == 1  # type: ignore[attr-defined]


def test_a_state_dict_from_the_future_is_refused() -> None:
    state = nn.Sequential(SReLU(3)).state_dict()
    state._metadata["0"]["version"] = 99  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"of 0 has version 99.*newer torch-srelu"):
        nn.Sequential(SReLU(3)).load_state_dict(state)


def test_copies_and_pickles() -> None:
    unit = SReLU(3, a_r=0.5)
    for other in (copy.deepcopy(unit), pickle.loads(pickle.dumps(unit))):
        assert torch.equal(other(torch.ones(1, 3)), unit(torch.ones(1, 3)))


def test_lazy_becomes_itself() -> None:
    net = nn.Sequential(nn.LazyLinear(6), LazySReLU(a_l=0.5))
    assert "LazySReLU" in repr(net)
    y = net(torch.randn(2, 4))
    unit = net[1]
    assert type(unit) is SReLU
    assert unit.num_channels == 6
    assert unit.a_l.tolist() == [0.5] * 6
    y.sum().backward()
    assert all(p.grad is not None for p in unit.parameters())


def test_lazy_loads_a_state_dict_before_its_first_input() -> None:
    source = SReLU(5, a_l=0.7)
    lazy = LazySReLU()
    lazy.load_state_dict(source.state_dict())
    assert lazy.num_channels == 5
    x = torch.randn(2, 5)
    assert torch.equal(lazy(x), source(x))
    assert lazy.num_channels == 5


def test_lazy_needs_its_dim() -> None:
    with pytest.raises(
        ValueError,
        match=r"dim=1 does not exist in the first input, of shape \(3,\).*LazySReLU\(dim=-1\)",
    ):
        LazySReLU()(torch.randn(3))
