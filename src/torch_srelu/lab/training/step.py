"""One training step: plain, compiled, or captured as a CUDA graph.

A step does not synchronize with the device: losses are summed there, the learning rate and the
position in the data are tensors. So the same code runs eagerly on a CPU and in a capture. Compiled
are the network and its loss, forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from torch_srelu import param_groups

from ..config.run import Run
from ..data.batches import TrainingBatches
from ..models.network import Network
from ..runtime.cuda_graphs import capture_graph
from ..runtime.distributed import ProcessGroup
from ..runtime.seeds import Dropout, DropoutStream, StochasticModule

COMPILER = "inductor"  # backend of torch.compile


def make_optimizer(net: Network, run: Run) -> torch.optim.SGD:
    """SGD whose groups have a "factor", which multiplies the run's learning rate.

    Factors and weight decay are those of the network.
    """
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for parameter, factor, decay in net.rates(run.weight_decay):
        groups.setdefault((factor, decay), []).append(parameter)
    own = [{"params": p, "lr": factor, "weight_decay": w} for (factor, w), p in groups.items()]
    made = param_groups(net, lr=1.0, lr_scale=run.lr_scale, groups=own)
    for group in made:
        group["factor"] = group["lr"]
        if group["params"][0].is_cuda:  # a captured step reads the learning rate at each replay
            group["lr"] = torch.zeros((), device=group["params"][0].device)
    return torch.optim.SGD(made, lr=0.0, momentum=run.momentum, fused=True)


class TrainingStep:
    """Trains a network on the next batch each time it is called.

    Args:
        net: The network, in training mode, on its device.
        optimizer: From `make_optimizer`.
        batches: Where the data come from.
        dropout: The stream that the network's dropout draws from.
        run: The run's configuration.
        group: The processes that share each batch.
        compiled: Whether torch.compile compiles the network's part of the step, where it can.
        capture: Whether to capture the step as a CUDA graph.

    Attributes:
        totals: Sums over the steps since `begin_epoch`: loss, wrong images, gradient norm.
        weights: All parameters of the network, without autograd.
        averaged: Their exponential average; empty if the run has none.
        rate: The learning rate of the last step.
    """

    def __init__(
        self,
        net: Network,
        optimizer: torch.optim.SGD,
        batches: TrainingBatches,
        dropout: DropoutStream,
        run: Run,
        group: ProcessGroup,
        compiled: bool,
        capture: bool,
    ) -> None:
        self.net, self.optimizer, self.batches = net, optimizer, batches
        self.dropout, self.run, self.group = dropout, run, group
        self.device = batches.device
        self.trained = [p for p in net.parameters() if p.requires_grad]
        self.totals = torch.zeros(3, dtype=torch.float64, device=self.device)
        self.weights = [p.detach() for p in net.parameters()]
        self.averaged = [w.clone() for w in self.weights] if run.ema else []
        self.update_average = get_ema_multi_avg_fn(run.ema)
        stochastic = [m for m in net.modules() if isinstance(m, StochasticModule)]
        self.dropouts = [m for m in stochastic if isinstance(m, Dropout)]
        # Only dropout masks can be drawn before a compiled network is called.
        self.compiled = compiled and len(self.dropouts) == len(stochastic)
        self.capture = capture
        self.loss = self.compute_loss
        if self.compiled:
            self.loss = torch.compile(self.compute_loss, fullgraph=True, backend=COMPILER)
        self.rate = math.nan
        self.reset_graph()

    def reset_graph(self) -> None:
        """Drops the captured graph, which no longer computes what the network does."""
        self.graph: torch.cuda.CUDAGraph | None = None
        if self.run.momentum:  # zero where there is none: then no step differs from the others
            for p in self.trained:
                self.optimizer.state[p].setdefault("momentum_buffer", torch.zeros_like(p))

    def begin_epoch(self, epoch: int, step: int = 0) -> None:
        """Goes to batch ``step`` of ``epoch``; at the first one the totals are set to zero."""
        self.batches.begin(epoch, step)
        if step == 0:
            self.totals.zero_()

    def __call__(self, step: int, rate: float) -> None:
        """Trains on the next batch, as training step ``step`` of the whole run."""
        self.set_rate(rate)
        self.prepare()
        self.dropout.seek(step)
        self.batches.advance()
        if self.graph is None:
            self.train_batch()
        else:
            self.graph.replay()

    def set_rate(self, rate: float) -> None:
        """Sets the learning rate of every group: its factor times ``rate``."""
        if rate == self.rate:
            return
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["factor"])
            else:
                group["lr"] = rate * group["factor"]
        self.rate = rate

    def prepare(self) -> None:
        """Captures the step where that is due; all that the warm-up changed is restored."""
        if not self.capture or self.graph is not None:
            return
        momentum = [s["momentum_buffer"] for s in self.optimizer.state.values() if s]
        changing = [self.totals, *self.batches.state()]
        state = [*self.net.parameters(), *momentum, *self.averaged, *changing]
        saved = [t.detach().clone() for t in state]

        def warm_up() -> None:
            self.batches.rewind()
            self.train_batch()

        graph = capture_graph(self.train_batch, warm_up, [self.dropout.generator])
        copy_all(state, saved)
        torch.cuda.synchronize(self.device)
        self.graph = graph

    def train_batch(self) -> None:
        """Takes the next batch, updates the parameters and adds to `totals`; may be captured."""
        x, y = self.batches.next()
        self.optimizer.zero_grad(set_to_none=True)
        if self.compiled:
            self.draw_masks(x)
        loss, sums = self.loss(x, y)
        loss.backward()
        gradients = [p.grad for p in self.trained if p.grad is not None]
        flat = self.group.average_gradients(gradients)
        with torch.no_grad():
            # A norm for each of them first, as in get_total_norm, takes the host far longer.
            norm = torch.linalg.vector_norm(flat)
            self.totals += torch.cat([sums, norm.double()[None]])
        self.optimizer.step()
        self.net.constrain()
        if self.averaged:
            self.update_average(self.averaged, self.weights, None)

    def compute_loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss of a batch, and the sums of its losses and its errors."""
        outputs = forward(self.net.outputs, x, self.run)
        loss, plain = self.net.losses(outputs, y)
        wrong = (outputs[0].argmax(1) != y).sum()
        return loss, torch.stack([plain.detach().double() * len(y), wrong.double()])

    def draw_masks(self, x: Tensor) -> None:
        """Draws the dropout masks of the batch ``x``, which a compiled network cannot draw."""
        if any(dropout.mask is None for dropout in self.dropouts):
            # Each is like its dropout's input, seen in eval mode, which draws nothing.
            hooks = [m.register_forward_pre_hook(_mask_like_input) for m in self.dropouts]
            self.net.eval()
            with torch.no_grad():
                forward(self.net.outputs, x, self.run)
            self.net.train()
            for hook in hooks:
                hook.remove()
        for dropout in self.dropouts:
            dropout.draw()


@torch.no_grad()
def copy_all(targets: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    """Copies each value into its target."""
    for target, value in zip(targets, values, strict=True):
        target.copy_(value)


def _mask_like_input(dropout: Dropout, inputs: tuple[Tensor]) -> None:
    dropout.mask = torch.empty_like(inputs[0])


def forward(
    function: Callable[[Tensor], Tensor | tuple[Tensor, ...]], x: Tensor, run: Run
) -> tuple[Tensor, ...]:
    """What a network, or its `outputs`, gives for ``x`` in the run's precision, as float32."""
    if x.is_cuda:
        x = x.contiguous(memory_format=torch.channels_last)
    with torch.autocast(
        x.device.type,
        dtype=torch.bfloat16,
        enabled=run.precision == "bf16",
        cache_enabled=False,  # a cast kept across a capture would be stale
    ):
        out = function(x)
        return tuple(t.float() for t in (out if isinstance(out, tuple) else (out,)))
