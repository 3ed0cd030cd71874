"""Launches: kernels get the arguments that they take, from Python and from C."""

import ctypes

import pytest
import torch

from checks import DEVICE, using
from torch_srelu import SReLU, srelu
from torch_srelu.ops import layout
from torch_srelu.ops.triton import triton_backend as triton
from torch_srelu.ops.triton import triton_key_statistics, triton_launch
from torch_srelu.ops.triton.triton_launch import OPTIONS, Launch, arguments

_launch = triton_launch._launch
in_c = pytest.mark.skipif(_launch is None, reason="native/launch.c is not compiled")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 256), (2, 70, 256), (900, 70)])
def test_kernels_get_their_arguments(shape, biased: bool, monkeypatch) -> None:
    """Arguments go by position, and the interpreter accepts what the compiler would refuse."""
    launch, kernels = Launch.__call__, set()

    def counted(self, key, *tensors, out=()) -> None:
        given = [name for name in self.meta if name not in OPTIONS]
        names = self.kernel.arg_names
        assert names[-len(given) :] == given
        assert len(names) == len(tensors) + len(out) + len(self.sizes) + len(given)
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


@pytest.mark.parametrize("view", [layout.ChannelView(2, 5, 256), layout.ChannelView(900, 70, 1)])
@pytest.mark.parametrize("keep", [False, True])
def test_key_statistics_kernels_get_their_arguments(view: layout.ChannelView, keep: bool) -> None:
    launch = triton_key_statistics._launch(view, torch.float32, 10, keep)
    given = [name for name in launch.meta if name not in OPTIONS]
    assert launch.kernel.arg_names[-len(given) :] == given


def test_arguments_that_triton_drops_are_not_passed() -> None:
    types = ["*bf16", "constexpr", "*fp32", "i32", "constexpr", "i64", "constexpr", "constexpr"]
    assert arguments(types, 3, (7, 1, 2**40)) == ((8, 8, 4, 8), (0, 2, -1, -1), (0, 0, 7, 2**40))
    assert arguments(["*fp32", "fp32"], 1, (2,)) is None  # an unknown type
    assert arguments(["i32"], 1, ()) is None  # an integer in place of a tensor
    assert arguments(["*fp32", "*fp32"], 1, (2,)) is None


@in_c
def test_a_launch_in_c() -> None:
    """What the driver's cuLaunchKernel gets, with a Python function in its place."""
    launched = []

    @ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.c_void_p,
        *[ctypes.c_uint] * 7,
        *[ctypes.c_void_p] * 3,
    )
    def cu_launch_kernel(function, *rest):
        *sizes, stream, params, _ = rest
        pointers = ctypes.cast(params, ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)))
        launched.append((function, sizes, stream, [pointers[i].contents.value for i in range(3)]))
        return 0

    address = ctypes.cast(cu_launch_kernel, ctypes.c_void_p).value
    # An aligned tensor, an integer, a tensor of any alignment.
    plan = _launch.plan(address, 5, (2, 3, 4), 128, 64, 1, (0, -1, 1), (0, 7, 0))
    x, odd = torch.empty(8), torch.empty(9)[1:]
    assert _launch.launch(plan, 6, x, odd)
    pointers = [x.data_ptr(), 7, odd.data_ptr()]
    assert launched == [(5, [2, 3, 4, 128, 1, 1, 64], 6, pointers)]
    for tensors in ((odd, x), (None, x), (x,)):
        assert not _launch.launch(plan, 6, *tensors)
    with pytest.raises(TypeError, match="plan, stream"):
        _launch.launch(plan)
    with pytest.raises(ValueError, match="equally long"):
        _launch.plan(1, 1, (1, 1, 1), 32, 0, 0, (1,), ())
    with pytest.raises(ValueError, match="at most 16 tensors"):
        _launch.plan(1, 1, (1, 1, 1), 32, 0, 0, (16,), (0,))
    assert len(launched) == 1


@in_c
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(2, 5, 256), (900, 70)])
def test_launches_call_the_driver(shape) -> None:
    """From the second on; the driver's parameter sizes are those of the kernel's types."""
    x = torch.randn(shape, device="cuda").requires_grad_()
    unit = SReLU(shape[1], device="cuda")
    unit(x).sum().backward()
    view = layout.view(x, shape[1], 1)
    backward = triton._backward_launch(view, x.dtype, True, True, 0)
    for launch in (triton._forward_launch(view, x.dtype), backward.first, backward.second):
        plans = [] if launch is None else list(launch.plans.values())
        assert plans or launch is None
        assert None not in plans
