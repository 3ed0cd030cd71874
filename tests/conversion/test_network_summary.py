"""summary: every SReLU of a network in one table."""

import pytest
import torch
from torch import nn

import torch_srelu as ts


def network():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.LeakyReLU(0.1))


def test_a_unit_is_described_by_its_parameters():
    net = ts.convert(network())
    values = {
        "t_r": torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, -6.0]),
        "a_r": torch.linspace(0, 1, 6),
        "t_l": torch.tensor([0.0, 3.0, 0.0, 0.0, 0.0, -6.0]),
        "a_l": torch.full((6,), 0.25),
    }
    with torch.no_grad():
        for name, value in values.items():
            net[1].get_parameter(name).copy_(value)
    unit, other = ts.summary(net).units
    assert (unit.where, unit.channels, unit.dim, unit.replaced) == ("1", 6, -1, "ReLU")
    assert (other.where, other.channels, other.dim, other.replaced) == ("3", 3, -1, "LeakyReLU")
    assert unit.crossed == 1  # t_l = 3 > t_r = 2; where both are -6 they touch
    for name, value in values.items():
        wide = value.double()
        spread = unit.parameters[name]
        assert spread.mean == pytest.approx((wide.sum() / 6).item())
        assert spread.std == pytest.approx((wide - wide.mean()).square().mean().sqrt().item())


def test_it_prints_one_line_for_each_unit_and_each_activation_left():
    net = ts.convert(network(), skip="3")
    text = str(ts.summary(net))
    lines = text.splitlines()
    assert lines[0] == "1 SReLU unit, 6 channels, 24 parameters"
    assert any(line.split() == ["1", "6", "-1", "ReLU", "1", "1", "0", "0", "0"] for line in lines)
    assert any(line.startswith("3") and line.endswith("not asked for") for line in lines)
    assert not any(line != line.rstrip() for line in lines)


def test_the_dimension_of_the_channels_is_told_unless_they_share_their_parameters():
    found = ts.summary(nn.Sequential(ts.SReLU(2), ts.SReLU(3, dim=-3), ts.SReLU(1)))
    assert [unit.dim for unit in found.units] == [1, -3, None]
    rows = [line.split()[:3] for line in str(found).splitlines()[3:]]
    assert rows == [["0", "2", "1"], ["1", "3", "-3"], ["2", "1", "-"]]


def test_a_network_that_convert_never_saw():
    net = nn.Sequential(ts.SReLU(2), nn.ReLU(), ts.LazySReLU(), ts.SReLU(3, device="meta"))
    found = ts.summary(net)
    assert [(unit.channels, unit.replaced) for unit in found.units] == [(2, ""), (0, ""), (3, "")]
    assert not found.units[1].parameters
    (left,) = found.left
    assert (left.where, left.activation) == ("1", "ReLU")
    assert "?" in str(found)
    assert str(ts.summary(nn.Linear(2, 2))) == "0 SReLU units, 0 channels, 0 parameters"


def test_a_part_of_a_network_and_a_copy_know_what_was_replaced():
    net = ts.convert(nn.Sequential(network()))
    assert [unit.replaced for unit in ts.summary(net[0]).units] == ["ReLU", "LeakyReLU"]


def test_bad_input():
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module"):
        ts.summary("net")  # type: ignore[arg-type]
