"""That launches give kernels what these ask for."""

import pytest
import torch

from checks import DEVICE, using
from torch_srelu import SReLU, srelu
from torch_srelu.ops import layout, triton_scan
from torch_srelu.ops.triton_launch import OPTIONS, Launch


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 256), (2, 70, 256), (900, 70)])
def test_kernels_get_what_they_ask_for(shape, biased: bool, monkeypatch) -> None:
    """Arguments go by position, and the interpreter accepts what the compiler would refuse."""
    launch, kernels = Launch.__call__, set()

    def counted(self, key, *tensors, out=()) -> None:
        given = [name for name in self.meta if name not in OPTIONS]
        names = self.kernel.arg_names
        assert names[-len(given) :] == given
        assert len(names) == len(tensors) + len(out) + len(self.fixed)
        assert all(n.endswith("_out") for n in names[len(tensors) : len(tensors) + len(out)])
        kernels.add(self.kernel)
        launch(self, key, *tensors, out=out)

    monkeypatch.setattr(Launch, "__call__", counted)
    x = torch.randn(shape, device=DEVICE).requires_grad_()
    unit, bias = SReLU(shape[1], device=DEVICE), torch.zeros(shape[1], device=DEVICE)
    with using("triton"):
        y = unit(x) if not biased else srelu(x, *unit.parameters(), bias=bias.requires_grad_())
        y.sum().backward()
    assert len(kernels) >= 2


@pytest.mark.parametrize("view", [layout.View(2, 5, 256), layout.View(900, 70, 1)])
@pytest.mark.parametrize("keep", [False, True])
def test_scans_get_what_they_ask_for(view: layout.View, keep: bool) -> None:
    launch = triton_scan._launch(view, torch.float32, 10, keep)
    given = [name for name in launch.meta if name not in OPTIONS]
    assert launch.kernel.arg_names[-len(given) :] == given
