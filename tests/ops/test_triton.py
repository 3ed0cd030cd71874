"""What is special about the Triton kernels: both shapes of kernel, and sizes past 32 bits."""

import pytest
import torch

from checks import DEVICE, Problem, assert_three_way, using
from torch_srelu import SReLU, srelu
from torch_srelu.ops import layout, triton, triton_scan


@pytest.mark.parametrize(
    ("shape", "runs"),
    [
        ((2, 5, 16, 16), True),  # runs of 256, several to a tile
        ((2, 5, 4, 4), False),  # 16: too short
        ((2, 3, 257), False),  # no multiple of 16: no wide reads
        ((2, 3, 1025), True),  # likewise, but too long for one sum per column
        ((2, 3, 4096 + 16), True),  # several blocks to a run, the last one partial
        ((9, 300), False),
        ((300, 2), False),
    ],
)
def test_both_kernels(shape, runs: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    view = layout.view(x, shape[1], 1)
    assert view is not None
    assert triton.is_runs(view) is runs
    params = [torch.randn(shape[1]) for _ in range(4)]
    assert_three_way(Problem(x, params, torch.randn(shape), 1), "triton")


@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", [(2, 5, 256), (7, 5)])
def test_computes_what_is_needed(shape, needed) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(2, *shape, device=DEVICE)
    params = [torch.randn(5, device=DEVICE) for _ in range(4)]
    view = layout.view(x, 5, 1)
    assert view is not None
    grad_x, grads = triton.backward(grad, x, params, view, *needed)
    full_x, full = triton.backward(grad, x, params, view, True, True)
    assert (grad_x is not None) is needed[0]
    assert (grads is not None) is needed[1]
    assert full_x is not None
    assert full is not None
    assert grad_x is None or torch.equal(grad_x, full_x)
    assert grads is None or torch.equal(grads, full)


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU with 32 GB")
@pytest.mark.parametrize("shape", [(2, 3, 360_000_016), (1_100_000_000, 2)])
def test_more_than_two_to_the_31_elements(shape) -> None:
    x = torch.zeros(shape, dtype=torch.bfloat16, device="cuda")
    x[-1, -1] = -5.0
    params = [
        torch.full((shape[1],), v, device="cuda", requires_grad=True) for v in (1.0, 1.0, -1.0, 0.5)
    ]
    import torch_srelu

    y = torch_srelu.srelu(x.requires_grad_(), *params)
    assert y[-1, -1].flatten()[-1].item() == -3.0
    assert int((y != 0).sum()) == x[-1, -1].numel()
    grads = torch.autograd.grad(y, [x, *params], torch.ones_like(y))
    assert grads[0][-1, -1].flatten()[-1].item() == 0.5
    expected = torch.zeros(shape[1])
    expected[-1] = 0.5 * x[-1, -1].numel()
    torch.testing.assert_close(grads[3].cpu(), expected, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 256), (2, 70, 256), (900, 70)])
def test_kernels_get_what_they_ask_for(shape, biased: bool, monkeypatch) -> None:
    """Arguments go by position, and the interpreter accepts what the compiler would refuse."""
    launch, kernels = triton.Launch.__call__, set()

    def counted(self, key, *tensors, out=()) -> None:
        given = [name for name in self.meta if name not in triton.OPTIONS]
        names = self.kernel.arg_names
        assert names[-len(given) :] == given
        assert len(names) == len(tensors) + len(out) + len(self.fixed)
        assert all(n.endswith("_out") for n in names[len(tensors) : len(tensors) + len(out)])
        kernels.add(self.kernel)
        launch(self, key, *tensors, out=out)

    monkeypatch.setattr(triton.Launch, "__call__", counted)
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
    given = [name for name in launch.meta if name not in triton.OPTIONS]
    assert launch.kernel.arg_names[-len(given) :] == given
