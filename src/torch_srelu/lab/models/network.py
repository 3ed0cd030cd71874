"""What a training loop asks of a network, and what describes a network before it is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..runtime.seeds import DropoutStream
from ..util.patience import PATIENCE
from .activation_registry import ActivationSpec, activation
from .layers import ActivatedLayer, LayerBuilder, ParameterRate, limit_norm


class Network(nn.Module):
    """A network with its loss, its constraints and the learning rates of its parameters.

    Calling it gives logits (N, classes). Nothing in `outputs`, `losses` and `constrain` waits for
    the device, so that a whole training step can be captured as a CUDA graph.
    """

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """What `losses` needs of a training batch: the logits first, then those of other heads."""
        return (self(x),)

    def losses(self, outputs: tuple[Tensor, ...], labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss to minimize, and the cross-entropy of the logits.

        All networks are monitored and compared by the second, whatever the first is.

        Args:
            outputs: From `outputs`, in float32.
            labels: Classes (N,).
        """
        loss = F.cross_entropy(outputs[0], labels)
        return loss, loss

    def constrain(self) -> None:
        """Called after every step: projects parameters onto what they are constrained to."""

    def begin(self, done: float) -> bool:
        """Called when an epoch starts or resumes, with the share of training that is done.

        What it does must depend on ``done`` alone.

        Returns:
            Whether the network computes something else from now on, so that a captured step must
            be captured again.
        """
        return False

    def refine(self, done: float) -> None:
        """Called once before every epoch: may read the weights and write into buffers."""

    def activations(self) -> Iterator[tuple[str, nn.Module]]:
        """The activations by the names of their layers, in the order of their computation."""
        raise NotImplementedError

    def rates(self, weight_decay: float) -> Iterator[ParameterRate]:
        """How every parameter learns, each once; ``weight_decay`` is the run's."""
        raise NotImplementedError


class LayeredNetwork(Network):
    """A network all of whose parameters are in layers of `ActivatedLayer`."""

    def layers(self) -> Iterator[tuple[str, ActivatedLayer]]:
        """Convolutions and dense layers by name, in the order of their computation."""
        for name, module in self.named_modules():
            if isinstance(module, ActivatedLayer):
                yield name, module

    def activations(self) -> Iterator[tuple[str, nn.Module]]:
        return ((name, layer.act) for name, layer in self.layers() if layer.spec.acts)

    def rates(self, weight_decay: float) -> Iterator[ParameterRate]:
        for _, layer in self.layers():
            yield from layer.rates(weight_decay)

    def constrain(self) -> None:
        for _, layer in self.layers():
            if layer.spec.max_norm is not None:
                limit_norm(layer.weights.weight, layer.spec.max_norm)


@dataclass(frozen=True)
class NetworkSpec:
    """Describes a network; `build` builds it.

    Attributes:
        channels: Channels of its images.
        size: Height and width of its images.
        classes: Number of classes.
        threads: CPU threads that its training should use; None for all.
        dead_after: Epochs after which a run is stopped if its loss never was below guessing.
    """

    channels: int
    size: int
    classes: int
    threads: int | None = field(default=None, kw_only=True)
    dead_after: int = field(default=PATIENCE, kw_only=True)

    def incompatibility(self, act: ActivationSpec) -> str | None:
        """Why the network cannot have this activation; None if it can."""
        if act.joins:
            return f"{act.name} joins the pieces of a unit, and the units of this net have but one"
        return None

    def supported_activation(self, act: str) -> ActivationSpec:
        """The registered activation of that name; ValueError if the network cannot have it."""
        found = activation(act)
        reason = self.incompatibility(found)
        if reason is not None:
            raise ValueError(f"this net cannot have the activation {act}: {reason}")
        return found

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
            act: Name of a registered activation.
            options: Its options.
            seed: Seeds the random streams of weights and of activation parameters.
            dropout: The random stream of training, as for dropout; needed for training only.
        """
        found = self.supported_activation(act)
        return self.build_network(LayerBuilder(found, options or {}, seed, dropout))

    def build_network(self, builder: LayerBuilder) -> Network:
        """What `build` returns; subclasses define it."""
        raise NotImplementedError
