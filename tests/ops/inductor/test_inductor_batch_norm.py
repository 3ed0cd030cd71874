"""Batch normalisations before SReLU in the graph of a compiled training step."""

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import joint_graph_passes
from torch._inductor.decomposition import select_decomp_table
from torch.fx import Graph, GraphModule, Node

import torch_srelu as ts
from checks import DEVICE
from torch_srelu.ops.inductor import inductor_batch_norm, inductor_patterns

FUSED = torch.ops.torch_srelu.srelu_backward_fused.default
PLAIN = torch.ops.torch_srelu.srelu_backward.default
GRAD, SECOND_GRAD, X, Z, SCALE, RESIDUAL = (
    0,
    1,
    2,
    9,
    11,
    13,
)  # arguments

# On a GPU, convolutions in float64 are never channels_last.
DTYPE = torch.float32 if DEVICE == "cuda" else torch.float64
CLOSE = {"rtol": 1e-4, "atol": 1e-5} if DEVICE == "cuda" else {}


@pytest.fixture(autouse=True)
def _cpu_as_gpu(monkeypatch) -> None:
    """Without a GPU, fuses on the CPU; with one, convolutions are exact."""
    if DEVICE == "cpu":
        monkeypatch.setattr(inductor_patterns, "_has_fused_kernel", lambda x: True)
    else:
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


class Block(nn.Module):
    """Two normalised SReLUs, the second behind a residual sum, as at the end of a bottleneck."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        # The second as `convert` writes it.
        self.units = nn.ModuleList(ts.SReLU(channels, dim=dim) for dim in (1, -3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.units[0](self.norms[0](self.first(x)))
        return self.units[1](self.norms[1](self.second(y)) + x)


def network(*blocks: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 1), *blocks, nn.Conv2d(8, 5, 1)).to(DTYPE)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return net.to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]


def images(memory_format: torch.memory_format = torch.channels_last, rows: int = 5) -> Tensor:
    torch.manual_seed(1)
    x = torch.randn(4, 3, rows, 6, dtype=DTYPE, device=DEVICE)
    return x.contiguous(memory_format=memory_format)


def backward_calls(net: nn.Module, x: Tensor) -> list[Node]:
    """SReLU's operators in the compiled backward pass of a step, whose gradients are right.

    The compiler's own passes and its split into forward and backward, without its code: the graphs
    run as they are.
    """
    graphs: list[GraphModule] = []

    def split(joint: GraphModule, inputs: Sequence[Tensor], **about) -> tuple:
        joint_graph_passes(joint)
        return min_cut_rematerialization_partition(joint, inputs, **about)

    def keep(graph: GraphModule, _: Sequence[Tensor]) -> Callable:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=keep,
        partition_fn=split,
        decompositions=select_decomp_table(),
        keep_inference_input_mutations=True,
    )
    alone = copy.deepcopy(net)
    torch.compile(net, backend=backend, fullgraph=True)(x).square().mean().backward()
    alone(x).square().mean().backward()
    for (name, parameter), other in zip(net.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, msg=name, **CLOSE)
    (_, backward) = graphs
    calls = [n for n in backward.graph.nodes if n.target in (FUSED, PLAIN)]
    return calls[::-1]  # as in the forward pass


def test_sums_are_fused_and_inputs_recomputed() -> None:
    inner, outer = backward_calls(network(Block()), images())
    assert inner.target is outer.target is FUSED
    assert inner.args[X] is None  # recomputed
    assert inner.args[SCALE] is not None
    assert inner.args[RESIDUAL] is None
    assert isinstance(outer.args[X], Node)  # its residual is not saved for another layer
    assert isinstance(outer.args[Z], Node)
    assert outer.args[SCALE] is None


def test_a_second_gradient_is_fused_as_well() -> None:
    _, middle, _, last = backward_calls(network(Block(), Block()), images())
    assert all(isinstance(middle.args[place], Node) for place in (GRAD, SECOND_GRAD, X, Z))
    assert last.args[X] is None
    assert all(isinstance(last.args[place], Node) for place in (Z, SCALE, RESIDUAL))


def test_with_frozen_units_and_norms() -> None:
    net = network(Block())
    for module in net.modules():
        if isinstance(module, ts.SReLU):
            module.frozen = True
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    assert [call.target for call in backward_calls(net, images())] == [FUSED, FUSED]


class Centred(nn.Module):
    """Not a normalisation, though something is subtracted and sums of its gradient are taken."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(shape))
        self.weight, self.bias = (nn.Parameter(torch.ones(8, 1, 1)) for _ in range(2))
        self.unit = ts.SReLU(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit((x - self.mean) * self.weight + self.bias)


class Written(Block):
    """Its first norm's bias is modified after the forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        with torch.no_grad():
            self.norms[0].bias.clamp_(-0.1, 0.1)  # type: ignore[union-attr]
        return y


def test_a_modified_bias_is_not_read_again() -> None:
    first, _ = backward_calls(network(Written()), images())
    assert isinstance(first.args[X], Node)
    assert isinstance(first.args[Z], Node)
    assert first.args[SCALE] is None


class OfItself(torch.autograd.Function):
    """Its backward pass subtracts what it has just summed."""

    @staticmethod
    def forward(ctx, z: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(z)
        return z + b.view(1, -1, 1, 1)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        (z,), (g,) = ctx.saved_tensors, grads
        centred = z - g.sum((0, 2, 3)).view(1, -1, 1, 1)
        return g, (g * centred).sum((0, 2, 3))


class Turning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias, self.unit = nn.Parameter(torch.zeros(8)), ts.SReLU(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit(OfItself.apply(x, self.bias))


class Shared(nn.Module):
    """Behind a norm, but its parameters are shared by channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.unit = nn.BatchNorm2d(8), ts.SReLU(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit(self.norm(x))


class InstanceNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unit = ts.SReLU(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit(F.instance_norm(x))


OTHERS = (Centred(4, 8, 1, 1), Centred(1, 1, 8, 1), InstanceNormed(), Turning(), Shared())


# Dynamo makes an instance of what it takes for a class of functions.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("other", OTHERS, ids=lambda other: type(other).__name__)
def test_nothing_else_is_fused(other: nn.Module) -> None:
    (call,) = backward_calls(network(other), images(rows=8))
    assert call.target is PLAIN


@pytest.mark.parametrize(
    ("shape", "dtype", "matches"),
    [
        ((1, 8, 1, 1), torch.float32, True),
        ((8, 1, 1), torch.float32, True),
        ((1, 1, 8, 1), torch.float32, False),  # as many rows as channels
        ((8,), torch.float32, False),  # as many columns
        ((8, 1, 1, 1), torch.float32, False),
        ((8, 8, 1, 1), torch.float32, False),
        ((1, 8, 1, 1), torch.bfloat16, False),  # not what the arithmetic is in
    ],
)
def test_values_per_channel_broadcast_along_the_channels(
    shape: tuple[int, ...], dtype: torch.dtype, matches: bool
) -> None:
    node = Graph().placeholder("values")
    node.meta["val"] = torch.empty(shape, dtype=dtype)
    z = torch.empty(8, 8, 8, 8, dtype=torch.bfloat16)
    assert (inductor_batch_norm._per_channel(node, z) is node) is matches


def test_contiguous_channels_are_not_fused() -> None:
    net = network(Block()).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    calls = backward_calls(net, images(torch.contiguous_format))
    assert [call.target for call in calls] == [PLAIN, PLAIN]
