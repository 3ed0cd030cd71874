"""Independent random streams from one seed.

There are five: weights, activation parameters, data order, augmentation, dropout. So equal seeds
mean equal initial weights and equal batches whatever the activation draws. A stream is a pure
function of the seed and of the epoch or step: a checkpoint need not save it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

STREAMS = ("weights", "activation", "order", "augmentation", "dropout")


def derive(seed: int, stream: str, position: int = 0) -> int:
    """The seed of ``stream`` at an epoch or step, the same on every machine.

    Example:
        >>> derive(1, "order", 0) == derive(1, "order", 1)
        False
    """
    if stream not in STREAMS:
        raise ValueError(f"unknown random stream {stream!r}: choose one of {', '.join(STREAMS)}")
    digest = hashlib.blake2b(f"{seed}/{stream}/{position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1  # torch takes 63 bits and a sign


def generator(
    seed: int, stream: str, position: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A generator for ``stream`` at an epoch or step."""
    return torch.Generator(device).manual_seed(derive(seed, stream, position))


class DropoutStream:
    """The random numbers of all dropout layers of a network: a function of the seed and the step.

    A captured CUDA graph may contain the draws: register `generator` with the graph; `seek` between
    two replays takes effect in the second. Every process draws for the whole batch and uses its
    part, so that the masks do not depend on the number of processes.
    """

    def __init__(self, seed: int, device: torch.device, rank: int = 0, world: int = 1) -> None:
        self.seed, self.rank, self.world = seed, rank, world
        self.generator = torch.Generator(device)

    def seek(self, step: int) -> None:
        """Sets the generator to training step ``step``."""
        self.generator.manual_seed(derive(self.seed, "dropout", step))

    def fill(self, mask: Tensor, share: float) -> Tensor:
        """Fills ``mask`` with 1 with probability ``share`` and else 0; returns it."""
        return self._draw(mask, lambda t: t.bernoulli_(share, generator=self.generator))

    def exponential(self, x: Tensor) -> Tensor:
        """A tensor like ``x`` from the exponential distribution with mean 1."""
        draws = torch.empty_like(x)
        return self._draw(draws, lambda t: t.exponential_(generator=self.generator))

    def draw(self, values: Tensor, weights: Tensor) -> Tensor:
        """One of the values along the last dimension, with probability proportional to its weight.

        The smallest of exponential variables whose rates are the weights. A weight of 0 is never
        drawn if there is one above it; where all are 0, any value may be. The gradient goes to the
        value that was drawn.

        Args:
            values: (N, ..., K); N counts images.
            weights: Likewise, float32 or better and not negative; they get no gradient.

        Returns:
            (N, ...).

        Example:
            >>> stream = DropoutStream(0, torch.device("cpu"))
            >>> stream.seek(0)
            >>> stream.draw(torch.tensor([[5.0, 6.0, 7.0]]), torch.tensor([[0.0, 2.0, 0.0]]))
            tensor([6.])
        """
        times = self.exponential(weights)
        # A time of 0 would make 0 / 0 of a weight that must not be drawn.
        speeds = weights.detach() / times.clamp_min(torch.finfo(times.dtype).tiny)
        numbers = torch.arange(weights.shape[-1], device=times.device)
        drawn = speeds.argmax(-1, keepdim=True) == numbers
        # No gather: its gradient would be added up with atomics, or sorted to be deterministic.
        return torch.where(drawn, values, 0).sum(-1)

    def _draw(self, out: Tensor, draw: Callable[[Tensor], Tensor]) -> Tensor:
        """Draws for the whole batch; ``out`` gets this process's part."""
        if self.world == 1:
            return draw(out)
        whole = draw(torch.cat([out] * self.world))  # in the memory format of ``out``
        return out.copy_(whole.chunk(self.world)[self.rank])


class StochasticModule(nn.Module):
    """Base class of modules that draw random numbers in training.

    Args:
        stream: The network's stream; without one, training mode is an error.
    """

    def __init__(self, stream: DropoutStream | None) -> None:
        super().__init__()
        self.stream = stream

    def own_stream(self) -> DropoutStream:
        """The stream; an error if there is none."""
        if self.stream is None:
            raise RuntimeError(
                "this network has no dropout stream: call net.eval(), or build it with `dropout=`"
            )
        return self.stream


class Dropout(StochasticModule):
    """Dropout from a `DropoutStream`: y = x * mask / (1 - p) in training.

    Args:
        p: Probability of a zero.
        stream: The network's stream; needed for training only.

    Attributes:
        mask: The mask of the next training passes, from `draw`; while it is None, every pass draws
            its own. Compiled passes cannot draw from a stream.
    """

    def __init__(self, p: float, stream: DropoutStream | None = None) -> None:
        super().__init__(stream)
        self.p = p
        self.mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        mask = self.mask
        if mask is None:
            mask = self.own_stream().fill(torch.empty_like(x), 1 - self.p)
        return x * mask / (1 - self.p)

    def draw(self) -> None:
        """Draws `mask` anew, in place."""
        assert self.mask is not None
        self.own_stream().fill(self.mask, 1 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
