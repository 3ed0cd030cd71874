"""That launches give kernels what these ask for."""

import pytest
import torch

from checks import DEVICE, using
from torch_srelu import SReLU, srelu
from torch_srelu.ops import layout
from torch_srelu.ops.triton import triton_backend as triton
from torch_srelu.ops.triton import triton_backward_kernels as backward_kernels
from torch_srelu.ops.triton import triton_key_statistics, triton_launch
from torch_srelu.ops.triton.triton_launch import OPTIONS, Launch, arguments

in_c = pytest.mark.skipif(triton_launch._launch is None, reason="native/launch.c is not compiled")


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
    launch = triton_key_statistics._launch(view, torch.float32, 10, keep)
    given = [name for name in launch.meta if name not in OPTIONS]
    assert launch.kernel.arg_names[-len(given) :] == given


def test_what_triton_leaves_out_is_not_handed_on() -> None:
    types = ["*bf16", "constexpr", "*fp32", "i32", "constexpr", "i64", "constexpr", "constexpr"]
    assert arguments(types, 3, (7, 1, 2**40)) == ((8, 8, 4, 8), (0, 2, -1, -1), (0, 0, 7, 2**40))
    assert arguments(["*fp32", "fp32"], 1, (2,)) is None  # a kind that we know nothing of
    assert arguments(["i32"], 1, ()) is None  # a number where a tensor should be
    assert arguments(["*fp32", "*fp32"], 1, (2,)) is None


def test_kernels_have_their_tensors_in_the_order_of_eager_cpp() -> None:
    """Which is that of the stand-in for the driver: the tests of eager.cpp see to that."""
    from driver import BACKWARD, FINISH, FORWARD, TENSORS

    kernels = {
        FORWARD: list(triton.FORWARD.values()),
        BACKWARD: [backward_kernels.backward_runs],
        FINISH: [backward_kernels.finish],
    }
    for function, names in TENSORS.items():
        for kernel in kernels[function]:
            found = [name.removesuffix("_ptr") for name in kernel.arg_names[: len(names)]]
            assert found == list(names)
    # This one writes no gradients of parameters: what it is given beyond is not handed on.
    found = [n.removesuffix("_ptr") for n in backward_kernels.backward_columns.arg_names[:9]]
    assert found == list(TENSORS[BACKWARD][:9])


@in_c
def test_a_launch_in_c() -> None:
    from driver import FORWARD, Driver

    x, y, params = torch.randn(2, 3, 4), torch.empty(2, 3, 4), torch.randn(4, 3)
    driver = Driver(x, 3)
    plan = driver.plan(FORWARD)
    params = [p.clone() for p in params]
    assert triton_launch._launch.launch(plan, 0, x, y, *params, None)
    assert driver.launched == [FORWARD]
    torch.testing.assert_close(y, srelu(x, *params))
    odd = torch.empty(25)[1:].view(2, 3, 4)
    assert not triton_launch._launch.launch(plan, 0, odd, y, *params, None)
    assert not triton_launch._launch.launch(plan, 0, None, y, *params, None)
    assert not triton_launch._launch.launch(plan, 0, x, y)
    with pytest.raises(TypeError, match="plan, stream"):
        triton_launch._launch.launch(plan)
    with pytest.raises(ValueError, match="equally long"):
        triton_launch._launch.plan(1, 1, (1, 1, 1), 32, 0, 0, (1,), ())
    with pytest.raises(ValueError, match="at most 16 tensors"):
        triton_launch._launch.plan(1, 1, (1, 1, 1), 32, 0, 0, (16,), (0,))
    assert driver.launched == [FORWARD]


@in_c
def test_a_chained_launch_in_c() -> None:
    from driver import FORWARD, Driver

    x, y, params = torch.randn(2, 3, 4), torch.empty(2, 3, 4), list(torch.randn(4, 3).unbind())
    driver = Driver(x, 3)
    params = [p.clone() for p in params]
    plan = driver.plan(FORWARD, chained=True)
    assert triton_launch._launch.launch(plan, 7, x, y, *params, None)
    torch.testing.assert_close(y, srelu(x, *params))
    # Grid, block, shared memory, stream, and the one attribute: that it may begin early.
    assert driver.launched == [(FORWARD, (1, 1, 1, 32, 1, 1, 0), 7, [(6, 1)])]


@in_c
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(2, 5, 256), (900, 70)])
def test_launches_go_straight_to_the_driver(shape) -> None:
    """From the second on; what the driver says of the kernels is what their types say."""
    x = torch.randn(shape, device="cuda").requires_grad_()
    unit = SReLU(shape[1], device="cuda")
    unit(x).sum().backward()
    view = layout.view(x, shape[1], 1)
    needs = (True, True, 0)
    backward = triton._backward_launch(view, x.dtype, *needs, chained=triton_launch.chains(0))
    for launch in (triton._forward_launch(view, x.dtype), backward.first, backward.second):
        plans = [] if launch is None else list(launch.plans.values())
        assert plans or launch is None
        assert None not in plans


@pytest.mark.parametrize("view", [layout.View(2**15, 128, 1), layout.View(128, 192, 256)])
def test_kernels_are_chained_where_there_are_two(view: layout.View) -> None:
    """A kernel that lets the next one begin early must know that it is ours, which waits."""

    def launches(need_params: bool, chained: bool):
        made = triton._backward_launch(view, torch.bfloat16, True, need_params, 0, 2, chained)
        return made.first, made.second

    first, second = launches(need_params=True, chained=True)
    assert second is not None
    assert first.meta["CHAINED"]
    assert second.meta["CHAINED"]
    assert second.meta[triton_launch.CHAINED]
    first, second = launches(need_params=True, chained=False)
    assert second is not None
    assert triton_launch.CHAINED not in second.meta  # an option that AMD's compiler does not know
    assert not first.meta["CHAINED"]
    assert not second.meta["CHAINED"]
    first, second = launches(need_params=False, chained=True)
    assert second is None
    assert not first.meta["CHAINED"]
