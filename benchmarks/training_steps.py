"""Training steps of NIN, ResNet-50 and ViT-S with any activation, on random data, to be timed.

NIN takes the steps that `srelu train` takes. ResNet-50 is torchvision's; for activations other than
its own in-place ReLU it is converted, so that every call site has a unit with its own parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from torch_srelu import SReLU, convert, param_groups, recompute_outputs
from torch_srelu.lab.config.recipes import recipe
from torch_srelu.lab.data.batches import Batches
from torch_srelu.lab.models.nin_networks import build
from torch_srelu.lab.runtime.cuda_graphs import capture_graph
from torch_srelu.lab.runtime.distributed import ProcessGroup
from torch_srelu.lab.runtime.seeds import DropoutStream
from torch_srelu.lab.training.step import TrainingStep, make_optimizer

RELU, SRELU = "relu", "srelu"
RECOMPUTED, IN_PART = "srelu recomputed", "srelu recomputed in part"
RECOMPUTING = (RECOMPUTED, IN_PART)
ACTIVATIONS = (RELU, "prelu", "gelu", SRELU, *RECOMPUTING)
MODES = ("eager", "compiled", "captured", "compiled+captured")

# The modules with the largest tensors, whose outputs are recomputed where others are kept.
PARTS = {
    "nin": ("conv1", "cccp1", "cccp2", "pool1"),
    "resnet50": ("relu", "maxpool", "layer1", "layer2"),
}

Work = Callable[[], object]


class Setting(NamedTuple):
    """What all activations have in common."""

    device: torch.device
    batch: int
    precision: str  # "float32" or "bf16"
    pixels: int  # height and width of the images of ResNet-50

    def data(self, batches: int, pixels: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        size = batches * self.batch
        images = torch.randn(size, 3, pixels, pixels, device=self.device)
        return images, torch.randint(classes, (size,), device=self.device)


def training_step(net: str, activation: str, mode: str, setting: Setting) -> Work:
    """A function that trains ``net`` for one step whenever it is called."""
    step = NETS[net](activation, mode, setting)
    if activation != RECOMPUTED:
        return step

    def recomputing() -> None:
        with recompute_outputs():
            step()

    return recomputing


def why_not(net: str) -> str | None:
    """Why ``net`` cannot be built here; None if it can."""
    if net == "nin":
        return None
    try:
        import torchvision.models  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:  # absent, or made for another torch
        return f"torchvision cannot be imported ({error}); install the one for this torch"
    return None


def _nin(activation: str, mode: str, setting: Setting) -> Work:
    name = SRELU if activation in RECOMPUTING else activation
    run = recipe("cifar10", name, seed=0, batch=setting.batch, precision=setting.precision)
    dropout = DropoutStream(run.seed, setting.device)
    net = build(run.net, name, seed=run.seed, dropout=dropout).to(setting.device)
    if setting.device.type == "cuda":
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for module in net.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = True
    if activation == IN_PART:
        _recompute_in(net, PARTS["nin"])
    images, labels = setting.data(4, 32, 10)
    batches = Batches(images, labels, setting.batch, run.seed, flips=False, team=ProcessGroup())
    batches.begin(0)
    optimizer, capture = make_optimizer(net, run), "captured" in mode
    compiled = "compiled" in mode
    step = TrainingStep(net, optimizer, batches, dropout, run, ProcessGroup(), compiled, capture)

    def work() -> None:
        batches.position.zero_()
        step(0, rate=1e-6)  # so small that nothing breaks

    return work


def _resnet50(activation: str, mode: str, setting: Setting) -> Work:
    from torchvision.models import resnet50  # late: NIN does without torchvision

    torch.manual_seed(0)
    net = resnet50()
    if activation != RELU:
        convert(net)
    if activation in _RIVALS:
        _replace_units(net, _RIVALS[activation])
    if activation == IN_PART:
        _recompute_in(net, PARTS["resnet50"])
    net.to(setting.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return _image_step(net, mode, setting, channels_last=True)


def _image_step(net: nn.Module, mode: str, setting: Setting, channels_last: bool) -> Work:
    """A step of SGD on one random batch of images of 1,000 classes."""
    groups = param_groups(net, lr=1e-6, weight_decay=1e-4)
    optimizer = torch.optim.SGD(groups, momentum=0.9, fused=True)
    images, labels = setting.data(1, setting.pixels, 1000)
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    if "compiled" in mode:
        torch._dynamo.config.recompile_limit = 256  # every network compiles the same functions
        net.compile(dynamic=False)

    def work() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(
            setting.device.type,
            dtype=torch.bfloat16,
            enabled=setting.precision == "bf16",
            cache_enabled=False,  # a cast that is kept across a capture would be stale
        ):
            loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()

    return _Captured(work) if "captured" in mode else work


def _vit_s(activation: str, mode: str, setting: Setting) -> Work:
    """timm's ViT-S/16 with SReLU where it had GELU, by ``act_layer``."""
    import timm

    from torch_srelu.integrations.timm import SReLULayer

    torch.manual_seed(0)
    act_layer = {RELU: nn.ReLU, "prelu": nn.PReLU, "gelu": nn.GELU, SRELU: SReLULayer}[activation]
    net = timm.create_model("vit_small_patch16_224", act_layer=act_layer, num_classes=1000)
    return _image_step(net.to(setting.device), mode, setting, channels_last=False)


NETS: dict[str, Callable[[str, str, Setting], Work]] = {
    "nin": _nin,
    "resnet50": _resnet50,
    "vit_s": _vit_s,
}

_RIVALS: dict[str, Callable[[int], nn.Module]] = {
    "prelu": nn.PReLU,
    "gelu": lambda channels: nn.GELU(),
}


def _replace_units(net: nn.Module, make: Callable[[int], nn.Module]) -> None:
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, SReLU):
                setattr(parent, name, make(child.num_channels))


def _recompute_in(net: nn.Module, parts: Iterable[str]) -> None:
    for name in parts:
        part = net.get_submodule(name)
        part.forward = recompute_outputs()(part.forward)  # a context is a decorator too


@functools.cache
def _pool():
    """One for all graphs: each replay stands for itself, and five ResNet-50 would not fit."""
    return torch.cuda.graph_pool_handle()


class _Captured:
    """A step that is recorded as a CUDA graph when it is first taken, and then replayed."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.graph is None:
            self.graph = capture_graph(self.work, pool=_pool())
        self.graph.replay()
