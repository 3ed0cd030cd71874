"""Training steps of a small network: against the reference, compiled, in CUDA graphs."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_srelu
from checks import DEVICE, random_inputs
from torch_srelu import SReLU


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


@pytest.mark.skipif(DEVICE != "cuda", reason="CUDA graphs need a GPU")
def test_cuda_graph_capture() -> None:
    x, params = random_inputs()
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


@pytest.mark.slow
def test_a_network_trains_in_lock_step_with_the_reference() -> None:
    """Two networks, the same but for the backend, follow the same loss curve."""
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
