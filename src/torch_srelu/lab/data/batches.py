"""Batches of training images, in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._text import counted
from ..runtime.distributed import ProcessGroup
from ..runtime.seeds import generator


def whole_steps(images: int, batch: int) -> int:
    """The steps of an epoch: whole batches; which images are left out varies with the epoch."""
    if batch > images:
        raise ValueError(
            f"a batch of {counted(batch, 'image')} is more than the "
            f"{counted(images, 'training image')}: choose a smaller batch"
        )
    return images // batch


def epoch_order(images: int, batch: int, seed: int, epoch: int) -> Tensor:
    """The images of each step of ``epoch`` (steps, batch), in random order."""
    steps = whole_steps(images, batch)
    order = torch.randperm(images, generator=generator(seed, "order", epoch))
    return order[: steps * batch].view(steps, batch)


class TrainingBatches:
    """Base class of what a training step takes its batches from.

    Attributes:
        steps: Batches in an epoch.
        device: Where they are.
        skipped: Names of images that could not be decoded so far.
    """

    steps: int
    device: torch.device
    skipped: set[str]

    def begin(self, epoch: int, step: int = 0) -> None:
        """Goes to batch ``step`` of ``epoch``."""
        raise NotImplementedError

    def advance(self) -> None:
        """Called before every step, and never captured: waits for data that are not there yet."""

    def next(self) -> tuple[Tensor, Tensor]:
        """The next images (B, C, H, W) and labels (B,): device work only, which may be captured."""
        raise NotImplementedError

    def rewind(self) -> None:
        """Makes some batch the next one, whichever: for steps that only warm up."""

    def state(self) -> list[Tensor]:
        """The tensors that `next` changes."""
        return []

    def close(self) -> None:
        """Called when no more batches are taken."""


class TensorBatches(TrainingBatches):
    """Batches of this process out of images that are on the device.

    The order, the flips and the position are tensors on the device, written in place: taking a
    batch is device work only, and a captured graph takes the next one at each replay.

    Args:
        images: Prepared training images (N, C, H, W) on the device.
        labels: Their classes (N,), int64.
        batch: Images in a step, over all processes.
        seed: The run's seed.
        flips: Whether each image is mirrored with probability 1/2, anew in every epoch.
        group: The processes that share the batch.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        batch: int,
        seed: int,
        flips: bool,
        group: ProcessGroup,
    ) -> None:
        self.images, self.labels, self.seed = images, labels, seed
        self.device, self.skipped = images.device, set()
        self.steps, self.batch = whole_steps(len(images), batch), batch
        self.share = group.share(batch)
        local = self.share.stop - self.share.start
        self.order = torch.zeros(self.steps, local, dtype=torch.int64, device=self.device)
        self.mirrored = torch.zeros(len(images) if flips else 0, dtype=torch.bool).to(self.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)

    def begin(self, epoch: int, step: int = 0) -> None:
        order = epoch_order(len(self.images), self.batch, self.seed, epoch)
        self.order.copy_(order[:, self.share])
        if len(self.mirrored):
            draws = generator(self.seed, "augmentation", epoch)
            self.mirrored.copy_(torch.rand(len(self.images), generator=draws) < 0.5)
        self.position.fill_(step)

    def rewind(self) -> None:
        self.position.zero_()

    def state(self) -> list[Tensor]:
        return [self.position]

    def _next_indices(self) -> Tensor:
        """Which images (B,) are in the next batch; moves on."""
        chosen = self.order.index_select(0, self.position)[0]
        self.position += 1
        return chosen

    def next(self) -> tuple[Tensor, Tensor]:
        chosen = self._next_indices()
        x, y = self.images.index_select(0, chosen), self.labels.index_select(0, chosen)
        if len(self.mirrored):
            mirrored = self.mirrored.index_select(0, chosen)[:, None, None, None]
            x = torch.where(mirrored, x.flip(3), x)
        return x, y
