"""What a training loop asks of a network, whatever it is inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..runtime.seeds import DropoutStream, generator
from ..util.patience import DEAD_AFTER
from .activation_registry import APL, Activation, Site, activation


class Rate(NamedTuple):
    """How one parameter learns: a factor on the run's learning rate, and its L2 penalty."""

    parameter: Tensor
    factor: float
    decay: float


class Network(nn.Module):
    """A network that brings along its loss, its constraints and how its parameters learn.

    Calling it gives logits (N, classes): its test form in eval mode. Nothing in `outputs`,
    `losses` and `constrain` waits for the device, so that a whole step can be captured as a CUDA
    graph.
    """

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """What `losses` needs of a training batch: the logits first, then those of other heads."""
        return (self(x),)

    def losses(self, outputs: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
        """What to minimise, and the cross-entropy of the logits.

        All networks are watched and compared by the second, whatever the first is.

        Args:
            outputs: From `outputs`, in float32.
            labels: Classes (N,).
        """
        loss = F.cross_entropy(outputs[0], labels)
        return loss, loss

    def constrain(self) -> None:
        """Called after every step: puts parameters back to where they are allowed."""

    def begin(self, done: float) -> bool:
        """Called when an epoch is begun or taken up again, with the share of training done.

        What it does must depend on ``done`` alone.

        Returns:
            Whether the network computes something else from now on, so that a captured step is
            out of date.
        """
        return False

    def refine(self, done: float) -> None:
        """Called once before every epoch: may look at the weights and write into buffers."""

    def sites(self) -> Iterator[tuple[str, nn.Module]]:
        """The activations by the names of their layers, in the order of their computation."""
        raise NotImplementedError

    def rates(self, weight_decay: float) -> Iterator[Rate]:
        """Every parameter, once; ``weight_decay`` is the run's."""
        raise NotImplementedError


class Making(NamedTuple):
    """What a network is made with.

    Attributes:
        unit: Its activation.
        options: Options of that.
        seed: Feeds the streams for weights and for activation parameters.
        dropout: Where all that is random in training draws from; needed for training only.
    """

    unit: Activation
    options: Mapping[str, Any]
    seed: int
    dropout: DropoutStream | None

    def streams(self) -> tuple[torch.Generator, torch.Generator]:
        """Where weights and where activation parameters draw from, both at their start."""
        return generator(self.seed, "weights"), generator(self.seed, "activation")

    def act(self, site: Site) -> nn.Module:
        """The activation for one layer."""
        return self.unit.build(site, **self.options)


@dataclass(frozen=True)
class Plan:
    """A network before it is built.

    Attributes:
        channels: Channels of its images.
        size: Their side.
        classes: How many classes come out.
        threads: How many CPU threads its work is worth; None means all there are.
        dead_after: After how many epochs it is given up if it is still no better than guessing.
    """

    channels: int
    size: int
    classes: int
    threads: int | None = field(default=None, kw_only=True)
    dead_after: int = field(default=DEAD_AFTER, kw_only=True)

    def refusal(self, act: Activation) -> str | None:
        """Why the network cannot have this activation; None if it can."""
        if act.joins:
            return f"{act.name} joins the pieces of a unit, and the units of this net have but one"
        return None

    def build(
        self,
        act: str,
        options: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        dropout: DropoutStream | None = None,
    ) -> Network:
        """Builds the network. Equal seeds give equal weights for every activation.

        Args:
            act: A registered activation.
            options: Its options.
            seed: Feeds the streams for weights and for activation parameters.
            dropout: Where all that is random in training draws from; needed for training only.
        """
        return self.made(Making(self.unit(act), options or {}, seed, dropout))

    def made(self, making: Making) -> Network:
        """What `build` returns, with an activation that the network can have."""
        raise NotImplementedError

    def unit(self, act: str) -> Activation:
        """The registered activation, if the network can have it."""
        found = activation(act)
        refusal = self.refusal(found)
        if refusal is not None:
            raise ValueError(f"this net cannot have the activation {act}: {refusal}")
        return found


class Chain(Network):
    """Named modules, one after the other."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        for module in self.children():
            x = module(x)
        return x


def activation_rates(act: nn.Module) -> Iterator[Rate]:
    """Parameters of an activation learn at the full rate, undecayed; APL has its own penalty."""
    decay = APL.weight_decay if isinstance(act, APL) else 0.0
    for parameter in act.parameters():
        yield Rate(parameter, 1.0, decay)
