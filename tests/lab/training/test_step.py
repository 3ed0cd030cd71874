"""One step of training: against the formula, and captured against plain."""

import dataclasses

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.config.run import Run
from torch_srelu.lab.data.batches import TensorBatches
from torch_srelu.lab.models import network_registry
from torch_srelu.lab.models.sequential import average_pool, max_pool
from torch_srelu.lab.paper.experiments import required_runs, select_experiments
from torch_srelu.lab.records import run_record
from torch_srelu.lab.runtime.distributed import ProcessGroup
from torch_srelu.lab.runtime.seeds import DropoutStream
from torch_srelu.lab.training.callbacks import Progress
from torch_srelu.lab.training.loop import train
from torch_srelu.lab.training.step import TrainingStep, make_optimizer
from torch_srelu.lab.training.trainer import Trainer

CPU = torch.device("cpu")
aten = torch.ops.aten
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def tiny(activation: str = "srelu", **changes):
    return recipe("digits", activation, 1, **({"epochs": 3, "batch": 64} | changes))


def test_a_step_is_sgd_as_published():
    """The first two updates of a layer, against the formula in float64."""
    made = Trainer(tiny("relu", weight_decay=0.1), None, CPU, ProcessGroup(), capture=False)
    conv = next(b for _, b in made.net.layers()).conv
    assert conv.bias is not None
    state = [(conv.weight, 1.0, 0.1), (conv.bias, 2.0, 0.0)]  # with factor and decay
    values = [p.detach().double() for p, _, _ in state]
    momentum = [torch.zeros_like(v) for v in values]
    made.training_step.begin_epoch(0)
    for step in range(2):
        made.training_step(step, rate=0.05)
        for i, (p, factor, decay) in enumerate(state):
            assert p.grad is not None
            momentum[i] = 0.9 * momentum[i] + p.grad.double() + decay * values[i]
            values[i] = values[i] - 0.05 * factor * momentum[i]
            torch.testing.assert_close(p.detach().double(), values[i], rtol=1e-5, atol=1e-6)


def _losses(compiled: bool, device: torch.device) -> list[list[float]]:
    """Loss, mistakes and gradient norm of four steps, two of them after the thaw."""
    made = Trainer(tiny("srelu"), None, device, ProcessGroup(), capture=False, compiled=compiled)
    step, totals = made.training_step, []
    step.begin_epoch(0)
    for i in range(4):
        if i == 2:
            made.adapt()
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
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")  # all bits are wanted
def test_a_compiled_step_is_the_plain_step(monkeypatch, device: str, compiler: str):
    """Up to rounding: the same data and the same dropout masks, before and after the thaw."""
    monkeypatch.setattr("torch_srelu.lab.training.step.COMPILER", compiler)
    at = torch.device(device)
    torch.testing.assert_close(_losses(True, at), _losses(False, at), rtol=1e-3, atol=1e-3)


class Reads(TorchDispatchMode):
    """Collects the operators that hand values of tensors to Python."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (aten._local_scalar_dense.default, aten.nonzero.default):
            self.found.add(str(func))
        return func(*args, **(kwargs or {}))


def _trained() -> dict[str, Run]:
    """A run of the reproduction for every network, and for every activation of NIN.

    Of networks for both CIFARs, which differ in the last layer, CIFAR-10's.
    """
    runs = required_runs(select_experiments(), {})
    nin = {f"{r.net}, {r.activation}": r for r in runs if r.net == "nin-cifar10"}
    nets = {r.net: r for r in runs}
    twins = {net for net in nets if net.replace("cifar100", "cifar10") in nets.keys() - {net}}
    return {net: run for net, run in nets.items() if net not in twins} | nin


@pytest.mark.parametrize("name", _trained())
def test_no_step_waits_for_the_device(name: str):
    """Else it could not be captured. Stochastic pooling does wait, but not in a capture."""
    run = dataclasses.replace(_trained()[name], batch=2)
    plan = network_registry.network_spec(run.net)
    images = torch.rand(4, plan.channels, plan.size, plan.size)
    batches = TensorBatches(
        images, torch.zeros(4, dtype=torch.int64), 2, 1, flips=True, group=ProcessGroup()
    )
    dropout = DropoutStream(1, CPU)
    net = plan.build(run.activation, run.options, seed=1, dropout=dropout)
    step = TrainingStep(
        net, make_optimizer(net, run), batches, dropout, run, ProcessGroup(), False, False
    )
    batches.begin(0)
    dropout.seek(0)
    step.set_rate(1e-3)
    # What is made without a device would have to be copied to a GPU; here it has no values.
    with Reads() as reads, torch.device("meta"):
        step.train_batch()
    looks = {"aten._local_scalar_dense.default"} if "stochastic" in name else set()
    assert reads.found == looks


@pytest.mark.slow
def test_compiled_pools_have_the_gradient_of_plain_ones():
    """Windows that the border cuts included, where compilers have been wrong."""
    torch.manual_seed(0)
    pools = torch.nn.Sequential(max_pool(3, 2), average_pool(3, 2))
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
    assert run_record.finished(tmp_path / "cut", run) is None
    record = train(run, tmp_path / "cut", device="cuda")
    assert [m._replace(seconds=0) for m in record.metrics] == [
        m._replace(seconds=0) for m in whole.metrics
    ]
    assert torch.equal(record.predictions(), whole.predictions())
