"""The operator as a citizen: compile, func, autocast, checkpointing, modes, graphs."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import torch_srelu
from checks import DEVICE, LAYOUTS, lay_out
from torch_srelu import SReLU
from torch_srelu.ops import reference


def problem(dtype=torch.float32, channels: int = 6, requires_grad: bool = True):
    torch.manual_seed(0)
    x = torch.randn(4, channels, 5, 5, dtype=dtype, device=DEVICE)
    params = [torch.randn(channels, device=DEVICE) for _ in range(4)]
    for t in (x, *params):
        t.requires_grad_(requires_grad)
    return x, params


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiles_as_one_graph(layout: str) -> None:
    """fullgraph, dynamic shapes, inductor; gradients equal eager's to the bit.

    So do values, but on a GPU, where forward code is the compiler's own (`test_inductor`).
    """
    compiled = torch.compile(torch_srelu.srelu, fullgraph=True, dynamic=True)
    for size in (3, 5):
        x, params = problem()
        x = lay_out(torch.randn(size, 6, size, 4, device=DEVICE), layout).requires_grad_()
        eager, graph = torch_srelu.srelu(x, *params), compiled(x, *params)
        assert graph.stride() == eager.stride()
        assert DEVICE == "cuda" or torch.equal(eager, graph)
        upstream = torch.randn_like(eager)
        expected = torch.autograd.grad(eager, [x, *params], upstream)
        got = torch.autograd.grad(graph, [x, *params], upstream)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.fixture
def tolerance():
    """What compiled products of matrices may differ by; on a GPU it warns if they are exact."""
    before = torch.get_float32_matmul_precision()
    if DEVICE == "cuda":
        torch.set_float32_matmul_precision("high")
        yield {"rtol": 1e-2, "atol": 1e-2}
    else:
        yield {}  # that of float32
    torch.set_float32_matmul_precision(before)


def test_a_network_compiles_with_it(tolerance) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), SReLU(8), nn.Flatten(), nn.LazyLinear(4), SReLU(1)).to(
        DEVICE
    )
    x = torch.randn(2, 3, 8, 8, device=DEVICE)
    eager = net(x)
    torch.testing.assert_close(torch.compile(net, fullgraph=True)(x), eager, **tolerance)


@pytest.mark.parametrize(
    "in_dims", [(0, None, None, None, None), (0, 0, 0, 0, 0), (2, None, 0, None, 1)]
)
def test_vmap(in_dims) -> None:
    torch.manual_seed(0)
    batch, channels = 3, 4
    shapes = [(5, channels, 2), *[(channels,)] * 4]
    tensors = [
        torch.randn(shape) if d is None else torch.randn(batch, *shape).movedim(0, d)
        for shape, d in zip(shapes, in_dims, strict=True)
    ]
    expected = [
        reference.srelu(
            *(t if d is None else t.select(d, i) for t, d in zip(tensors, in_dims, strict=True)), 1
        )
        for i in range(batch)
    ]
    assert torch.equal(torch.vmap(torch_srelu.srelu, in_dims)(*tensors), torch.stack(expected))
    # and the operator itself, as a graph would call it
    operator = torch.vmap(lambda *t: torch.ops.torch_srelu.srelu(*t, 1, False), in_dims)(*tensors)
    assert torch.equal(operator, torch.stack(expected))


def test_functional_transforms() -> None:
    x, params = problem(torch.float64, requires_grad=False)

    def loss(*tensors):
        return torch_srelu.srelu(*tensors).square().sum()

    leaves = [t.clone().requires_grad_() for t in (x, *params)]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    got = torch.func.grad(loss, argnums=tuple(range(5)))(x, *params)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
    row = x[0, :, 0, :1].T.contiguous()
    jacobian = torch.func.jacrev(lambda r: torch_srelu.srelu(r, *params))(row)
    torch.testing.assert_close(
        jacobian, torch.func.jacfwd(lambda r: torch_srelu.srelu(r, *params))(row)
    )


def test_jacobian_with_batched_gradients() -> None:
    """torch.autograd's own vmap, which is not torch.func's."""
    x, params = problem(torch.float64, requires_grad=False)
    row = x[:2, :, 0, 0].contiguous()

    def function(r):
        return torch_srelu.srelu(r, *params)

    loop = torch.autograd.functional.jacobian(function, row)
    torch.testing.assert_close(
        torch.autograd.functional.jacobian(function, row, vectorize=True), loop
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    """Low precision in, the same out; the parameters stay float32 and so do their gradients."""
    net = nn.Sequential(nn.Linear(4, 6), SReLU(6)).to(DEVICE)
    with torch.autocast(DEVICE, dtype):
        y = net(torch.randn(3, 4, device=DEVICE))
    assert y.dtype == dtype
    y.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())


def test_activation_checkpointing() -> None:
    x, params = problem()
    expected = torch.autograd.grad(torch_srelu.srelu(x, *params).square().sum(), [x, *params])
    y = checkpoint(torch_srelu.srelu, x, *params, use_reentrant=False)
    got = torch.autograd.grad(y.square().sum(), [x, *params])  # type: ignore[union-attr]
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_fake_tensors_and_dispatch_modes_see_an_operator() -> None:
    with FakeTensorMode():
        fake = SReLU(3)(torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last))
    assert fake.shape == (2, 3, 4, 4)
    assert fake.stride() == (48, 1, 12, 3)
    with FlopCounterMode(display=False):
        SReLU(3)(torch.randn(2, 3)).sum().backward()
    meta = SReLU(3, device="meta")(torch.empty(2, 3, device="meta"))
    assert meta.device.type == "meta"


@pytest.mark.parametrize("compiled", [False, True])
def test_frozen_gradients_are_zeros_not_none(compiled: bool) -> None:
    unit = SReLU(3, a_r=0.5).to(DEVICE)
    unit.frozen = True
    x = torch.randn(2, 3, 4, device=DEVICE, requires_grad=True)
    y = (torch.compile(unit, fullgraph=True) if compiled else unit)(x)
    y.square().sum().backward()
    assert all(
        torch.equal(p.grad, torch.zeros_like(p)) for p in unit.parameters() if p.grad is not None
    )
    assert all(p.grad is not None for p in unit.parameters())
    frozen_grad = x.grad
    x.grad, unit.frozen = None, False
    unit(x).square().sum().backward()
    assert frozen_grad is not None
    assert torch.equal(frozen_grad, x.grad)  # type: ignore[arg-type]
    assert unit.a_l.grad is not None
    assert unit.a_l.grad.abs().sum() > 0


def test_only_what_requires_a_gradient_gets_one() -> None:
    x, params = problem()
    (only,) = torch.autograd.grad(torch_srelu.srelu(x.detach(), *params).sum(), [params[3]])
    full = torch.autograd.grad(torch_srelu.srelu(x, *params).sum(), [x, *params])
    assert torch.equal(only, full[4])
    fixed = [p.detach() for p in params]
    assert torch.equal(torch.autograd.grad(torch_srelu.srelu(x, *fixed).sum(), [x])[0], full[0])


def test_third_derivatives() -> None:
    """The double backward is made of plain operators: autograd goes on from there."""
    x, params = problem(torch.float64)
    params = [p.detach().double().requires_grad_() for p in params]

    def second(function):
        y = function(x, *params)
        (first,) = torch.autograd.grad((y**3).sum(), [x], create_graph=True)
        (mixed,) = torch.autograd.grad((first**2).sum(), [params[1]], create_graph=True)
        return torch.autograd.grad(mixed.sum(), [x, *params])

    ours, plain = second(torch_srelu.srelu), second(lambda *t: reference.srelu(*t, 1))
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.skipif(DEVICE != "cuda", reason="CUDA graphs need a GPU")
def test_cuda_graph_capture() -> None:
    x, params = problem()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(torch_srelu.srelu(x, *params).square().sum(), [x, *params])
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = torch.autograd.grad(torch_srelu.srelu(x, *params).square().sum(), [x, *params])
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    expected = torch.autograd.grad(torch_srelu.srelu(x, *params).square().sum(), [x, *params])
    assert all(torch.equal(a, b) for a, b in zip(captured, expected, strict=True))


def losses(backend: str | None = None, mode: str | None = None) -> list[float]:
    """What a small network's training goes through, in a mode of the compiler if one is named."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), SReLU(8, a_r=0.7, t_l=-0.2), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), SReLU(16, a_r=0.7, t_l=-0.2), nn.Flatten(),
        nn.Linear(16 * 5 * 5, 10),
    ).to(DEVICE)  # fmt: skip
    # Not net.compile, which sees into modules of a Sequential one by one.
    model = net if mode is None else torch.compile(net, mode=mode, fullgraph=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    data = torch.randn(64, 1, 16, 16, device=DEVICE)
    labels = torch.randint(10, (64,), device=DEVICE)
    curve = []
    with torch_srelu.use_backend(backend) if backend else contextlib.nullcontext():
        for _ in range(40):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), labels)
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
    return curve


def test_a_network_trains_in_lock_step_with_the_reference() -> None:
    """Two networks, the same but for the execution, follow the same loss curve."""
    fused, plain = losses(), losses("reference")
    assert fused[-1] < 0.5 * fused[0]
    torch.testing.assert_close(torch.tensor(fused), torch.tensor(plain), rtol=2e-3, atol=1e-4)


# torch captures an empty graph first, and ignores the warning unless warnings are errors.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.skipif(DEVICE != "cuda", reason="CUDA graphs need a GPU")
def test_graphs_that_the_compiler_captures(tolerance) -> None:
    """What users of torch.compile take for small networks."""
    compiled, eager = losses(mode="reduce-overhead"), losses()
    assert compiled[-1] < 0.5 * compiled[0]
    torch.testing.assert_close(torch.tensor(compiled), torch.tensor(eager), **tolerance)


def test_the_operators_refuse_what_does_not_fit() -> None:
    """They can be called without the checks of `srelu`; kernels must not read past the end."""
    x, two = torch.randn(4, 3), [torch.ones(2)] * 4
    with pytest.raises(ValueError, match=r"do not fit x.*expected 3 values each, or 1"):
        torch.ops.torch_srelu.srelu(x, *two, 1, False)
    three = [torch.ones(3)] * 4
    with pytest.raises(ValueError, match=r"grad is torch\.float64"):
        torch.ops.torch_srelu.srelu_backward(x.double(), x, *three, 1, True, True)
