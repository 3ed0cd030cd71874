"""torch.export, ONNX and torch.jit.trace: plain operators only."""

import logging
import warnings

import pytest
import torch
from torch import nn

from torch_srelu import SReLU

onnxruntime = pytest.importorskip("onnxruntime")


def network() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), SReLU(6), nn.Flatten(2), SReLU(1), SReLU(9, dim=-1))
    with torch.no_grad():  # thresholds ordered, equal and crossed; slopes of 0 included
        net[1].t_r.copy_(torch.tensor([1.0, 0.2, -0.5, 0.0, 0.3, 2.0]))
        net[1].t_l.copy_(torch.tensor([0.0, 0.2, 0.5, -1.0, 0.3, -0.2]))
        net[1].a_r.copy_(torch.tensor([0.0, 0.5, 1.5, -1.0, 1.0, 0.3]))
        net[1].a_l.copy_(torch.tensor([0.0, 0.2, 0.5, 1.0, -0.5, 0.0]))
    return net.eval()


X = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(1))


def test_exports_plain_operators() -> None:
    net = network()
    batch = torch.export.Dim("batch")
    program = torch.export.export(net, (X,), dynamic_shapes=({0: batch},))
    names = {str(n.target) for n in program.graph.nodes if n.op == "call_function"}
    assert not any("srelu" in name for name in names)
    larger = torch.randn(7, 3, 5, 5)
    assert torch.equal(program.module()(larger), net(larger))


def test_onnxruntime_agrees(tmp_path) -> None:
    net = network()
    path = tmp_path / "net.onnx"
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about itself
        program = torch.onnx.export(net, (X,), dynamo=True, verbose=False)
        program.save(path)  # type: ignore[union-attr]
    domains = {node.domain for node in program.model.graph}  # type: ignore[union-attr]
    assert domains <= {"", "ai.onnx"}
    session = onnxruntime.InferenceSession(path)
    (name,) = (i.name for i in session.get_inputs())
    (got,) = session.run(None, {name: X.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), net(X), rtol=1e-5, atol=1e-6)


def test_onnxruntime_equals_the_unit_exactly(tmp_path) -> None:
    """The unit alone, without a convolution that sums in another order: difference 0."""
    unit = network()[1]  # type: ignore[index]
    x = torch.cat(
        [3 * torch.randn(4, 6), torch.full((1, 6), torch.inf), torch.full((1, 6), -torch.inf)]
    )
    path = tmp_path / "unit.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(unit, (x,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.equal(torch.from_numpy(got), unit(x))


def test_jit_trace() -> None:
    net = network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing is deprecated, and warns about our checks
        traced = torch.jit.trace(net, X)
    assert torch.equal(traced(X), net(X))
