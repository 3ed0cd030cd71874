"""One step of training: against the formula, and captured against plain."""

import pytest
import torch

from torch_srelu.lab import records, steps
from torch_srelu.lab.distributed import Team
from torch_srelu.lab.nets import POOLS
from torch_srelu.lab.recipes import recipe
from torch_srelu.lab.session import Session
from torch_srelu.lab.train import Progress, train

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def tiny(activation: str = "srelu", **changes):
    return recipe("digits", activation, 1, **({"epochs": 3, "batch": 64} | changes))


def test_a_step_is_sgd_as_published():
    """The first two updates of a layer, against the formula in float64."""
    made = Session(tiny("relu", weight_decay=0.1), None, CPU, Team(), capture=False)
    conv = next(b for _, b in made.net.blocks()).conv
    assert conv.bias is not None
    state = [(conv.weight, 1.0, 0.1), (conv.bias, 2.0, 0.0)]  # with factor and decay
    values = [p.detach().double() for p, _, _ in state]
    momentum = [torch.zeros_like(v) for v in values]
    made.take_step.begin_epoch(0)
    for step in range(2):
        made.take_step(step, rate=0.05)
        for i, (p, factor, decay) in enumerate(state):
            assert p.grad is not None
            momentum[i] = 0.9 * momentum[i] + p.grad.double() + decay * values[i]
            values[i] = values[i] - 0.05 * factor * momentum[i]
            torch.testing.assert_close(p.detach().double(), values[i], rtol=1e-5, atol=1e-6)


def _losses(compiled: bool, device: torch.device) -> list[list[float]]:
    """Loss, mistakes and gradient norm of four steps, two of them after the thaw."""
    made = Session(tiny("srelu"), None, device, Team(), capture=False, compiled=compiled)
    assert made.init is not None
    step, totals = made.take_step, []
    step.begin_epoch(0)
    for i in range(4):
        if i == 2:
            made._adapt()
        step(i, rate=0.05)
        totals.append(step.totals.tolist())
    return totals


@pytest.mark.parametrize(
    ("device", "compiler"),
    [
        ("cpu", "aot_eager"),  # the whole way but for the code, which takes a minute to make
        pytest.param("cuda", "inductor", marks=needs_gpu),
    ],
)
def test_a_compiled_step_is_the_plain_step(monkeypatch, device: str, compiler: str):
    """Up to rounding: the same data and the same dropout masks, before and after the thaw."""
    monkeypatch.setattr(steps, "COMPILER", compiler)
    at = torch.device(device)
    torch.testing.assert_close(_losses(True, at), _losses(False, at), rtol=1e-3, atol=1e-3)


def test_compiled_pools_have_the_gradient_of_plain_ones():
    """Windows that the border cuts included, where compilers have been wrong."""
    torch.manual_seed(0)
    pools = torch.nn.Sequential(*(POOLS[kind](3, stride=2, ceil_mode=True) for kind in POOLS))
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    plain = pools(x)
    grad = torch.randn_like(plain)
    compiled = torch.compile(pools)(x)
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(
        torch.autograd.grad(compiled, x, grad), torch.autograd.grad(plain, x, grad)
    )


@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("activation", ["relu", "apl", "srelu"])
def test_a_captured_step_is_the_plain_step(tmp_path, activation, precision):
    run = tiny(activation, precision=precision, ema=0.9, augmentation="flips", deterministic=True)
    plain = train(run, tmp_path / "plain", device="cuda", capture=False, compiled=False)
    captured = train(run, tmp_path / "captured", device="cuda", capture=True, compiled=False)
    assert [m._replace(seconds=0) for m in captured.metrics] == [
        m._replace(seconds=0) for m in plain.metrics
    ]
    assert torch.equal(captured.predictions(), plain.predictions())
    for layer, values in captured.parameters().items():
        assert torch.equal(values, plain.parameters()[layer]), layer


@needs_gpu
def test_a_captured_run_goes_on_bit_for_bit(tmp_path):
    run = tiny(precision="bf16", ema=0.9, freeze=1, deterministic=True)
    whole = train(run, tmp_path / "whole", device="cuda")

    def stop(progress: Progress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "cut", device="cuda", on_epoch=stop, checkpoint_seconds=0.0)
    assert records.finished(tmp_path / "cut", run) is None
    record = train(run, tmp_path / "cut", device="cuda")
    assert [m._replace(seconds=0) for m in record.metrics] == [
        m._replace(seconds=0) for m in whole.metrics
    ]
    assert torch.equal(record.predictions(), whole.predictions())
