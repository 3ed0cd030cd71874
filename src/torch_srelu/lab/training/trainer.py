"""A run in memory: the network, its data and where training stands."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import torch_srelu

from ..config.run import Run
from ..config.schedules import learning_rate
from ..data.datasets import dataset
from ..data.pipeline import Piece, open_source
from ..models import network_registry
from ..models.activation_registry import activation
from ..models.network import Network
from ..records.history import History, Metrics
from ..runtime.distributed import ProcessGroup
from ..runtime.seeds import DropoutStream
from . import inspection
from .step import TrainingStep, forward, forward_all, make_optimizer
from .topk import top_errors


class Evaluation(NamedTuple):
    """What a network said of images: logits (N, classes) and their true classes (N,)."""

    logits: Tensor
    labels: Tensor

    @property
    def predictions(self) -> Tensor:
        """The likeliest classes (N,)."""
        return self.logits.argmax(1)

    @property
    def error(self) -> float:
        """The share of wrong predictions."""
        return (self.predictions != self.labels).sum().item() / len(self.labels)

    @property
    def loss(self) -> float:
        """The mean cross-entropy."""
        return F.cross_entropy(self.logits.double(), self.labels).item()


class Trainer:
    """Everything a run needs between its first and its last step.

    Args:
        run: The decisions.
        data_root: A folder to search for the data first.
        device: Where to train.
        team: This process among those that train together.
        capture: Whether steps are captured as a CUDA graph.
        compiled: Whether the network's part of a step is compiled.

    Attributes:
        epoch: Epochs done.
        step: Steps done in the epoch that is under way.
        seconds: What these steps took.
        adapt_seconds: What the adaptive initialisation took.
        history: What was measured, epoch by epoch.
    """

    def __init__(
        self,
        run: Run,
        data_root: Path | str | None,
        device: torch.device,
        team: ProcessGroup,
        capture: bool,
        compiled: bool = False,
    ) -> None:
        self.run, self.data_root, self.device, self.team = run, data_root, device, team
        self.epoch, self.step, self.seconds, self.adapt_seconds = 0, 0, 0.0, 0.0
        self.history = History()
        self.source = open_source(run, data_root, device, team)
        self.batches = self.source.batches
        dropout = DropoutStream(run.seed, device, team.rank, team.world)
        self.net = _build(run, device, dropout)
        optimizer = make_optimizer(self.net, run)
        self.init = (
            torch_srelu.AdaptiveInit(self.net, optimizer, run.quantile, run.scope)
            if activation(run.activation).adapts
            else None
        )
        self.training_step = TrainingStep(
            self.net, optimizer, self.batches, dropout, run, team, compiled, capture
        )
        self.steps = self.batches.steps

    def begin_with(self, weights: Mapping[str, Tensor]) -> None:
        """Starts from these values of parameters instead of those drawn from the seed.

        Args:
            weights: From another network of the same plan, by name. What that network does not
                have, such as the parameters of another activation, stays as it was built.
        """
        own = self.net.state_dict()
        self.net.load_state_dict(own | {name: v for name, v in weights.items() if name in own})
        for average, parameter in zip(
            self.training_step.averaged, self.net.parameters(), strict=False
        ):
            average.copy_(parameter.detach())

    @property
    def phase(self) -> str:
        """ "frozen", "thawed", or "plain" where the activation is not adaptive."""
        if self.init is None:
            return "plain"
        return "thawed" if self.init.adapted else "frozen"

    def train_epoch(self, after_step: Callable[[], None]) -> Metrics:
        """Trains to the end of the epoch; calls ``after_step`` where training could be stopped."""
        if self.init is not None and not self.init.adapted and self.epoch >= self.run.freeze:
            self._adapt()
        share = self.epoch / self.run.epochs
        if self.net.begin(share):
            self.training_step.forget_graph()
        if self.step == 0:
            self.net.refine(share)
        done, total = self.epoch * self.steps, self.run.epochs * self.steps
        step, rate = self.training_step, learning_rate(self.run, done + self.step, total)
        step.begin_epoch(self.epoch, self.step)
        while self.step < self.steps:
            began, prepared = time.monotonic(), step.preparing
            rate = learning_rate(self.run, done + self.step, total)
            step(done + self.step, rate)
            self.step += 1
            self.seconds += time.monotonic() - began - (step.preparing - prepared)
            if self.step < self.steps:
                after_step()
        began = time.monotonic()
        loss, wrong, norm = self._totals()  # waits for the device
        self.seconds += time.monotonic() - began
        images = self.steps * self.run.batch
        metrics = Metrics(
            epoch=self.epoch + 1,
            lr=rate,
            train_loss=loss / images,
            train_error=wrong / images,
            grad_norm=norm / self.steps,
            seconds=round(self.seconds, 6),
            val_error=self._validation_error(),
            phase=self.phase,
        )
        quantiles, magnitude = inspection.inputs(
            self.net, self.source.first(inspection.IMAGES), self.run
        )
        parameters, weights = inspection.parameters(self.net), inspection.weights(self.net)
        self.history.add(metrics, parameters, quantiles, magnitude, weights)
        self.epoch, self.step, self.seconds = self.epoch + 1, 0, 0.0
        return metrics

    def settle(self) -> None:
        """Waits for the steps under way, on the epoch's clock: saving would wait for them too."""
        if self.device.type == "cuda":
            began = time.monotonic()
            torch.cuda.synchronize(self.device)
            self.seconds += time.monotonic() - began

    def close(self) -> None:
        """Ends what works for it elsewhere."""
        self.batches.close()

    @property
    def finite(self) -> bool:
        """Whether every parameter is a number."""
        return all(bool(p.isfinite().all()) for p in self.net.parameters())

    def _totals(self) -> tuple[float, float, float]:
        """Loss, wrong images and gradient norms of the epoch, summed over all processes."""
        totals = self.training_step.totals.clone()
        self.team.sum(totals[:2])  # the gradient's norm is the same in every process
        loss, wrong, norm = totals.tolist()
        return loss, wrong, norm

    def _adapt(self) -> None:
        assert self.init is not None
        began = time.monotonic()
        self.init.adapt(
            self.source.own_part(),
            forward=lambda _, images: forward_all(self.net, images, self.run),
        )
        self.training_step.forget_graph()
        self.adapt_seconds += time.monotonic() - began

    def _validation_error(self) -> float | None:
        held = self.source.validation()
        return None if held is None else self.evaluate(held).error

    @torch.no_grad()
    def evaluate(self, pieces: Iterable[Piece]) -> Evaluation:
        """Shows the network images with their classes, without dropout."""
        self.net.eval()
        logits, labels = [], []
        try:
            for images, classes in pieces:
                logits.append(forward(self.net, images, self.run))
                labels.append(classes)
        finally:
            self.net.train()
        return Evaluation(torch.cat(logits), torch.cat(labels))

    def test(self) -> tuple[dict[str, float], Tensor, Tensor]:
        """Opens the test data: errors and losses, predicted and true classes."""
        pieces = self.source.test()
        own = self.evaluate(pieces)
        result = {"test_error": own.error, "test_loss": own.loss}
        if dataset(self.run.dataset).kind == "photographs":
            result["test_top5_error"] = top_errors(own.logits, own.labels)[5]
        if self.run.ema:
            with self._averaged_weights():
                averaged = self.evaluate(pieces)
            result |= {"ema_test_error": averaged.error, "ema_test_loss": averaged.loss}
        if self.source.skipped():
            result["skipped_images"] = self.source.skipped()
        return result, own.predictions, own.labels

    @contextlib.contextmanager
    def _averaged_weights(self) -> Iterator[None]:
        own = [p.detach().clone() for p in self.net.parameters()]
        self._set_weights(self.training_step.averaged)
        try:
            yield
        finally:
            self._set_weights(own)

    @torch.no_grad()
    def _set_weights(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.net.parameters(), values, strict=True):
            parameter.copy_(value)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values from which `load_state_dict` goes on, bit for bit."""
        momentum = [
            self.training_step.optimizer.state[p].get("momentum_buffer")
            for p in self.net.parameters()
        ]
        return {
            "run": self.run.to_dict(),
            "epoch": self.epoch,
            "step": self.step,
            "seconds": self.seconds,
            "adapt_seconds": self.adapt_seconds,
            "totals": self.training_step.totals,
            "net": self.net.state_dict(),
            "momentum": momentum,
            "averaged": self.training_step.averaged,
            "adaptive": None if self.init is None else self.init.state_dict(),
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where `state_dict` was taken."""
        if Run.from_dict(state["run"]) != self.run:  # an older one lacks the fields added since
            raise ValueError("the checkpoint belongs to another run: remove it to train this one")
        self.net.load_state_dict(state["net"])
        if self.init is not None:
            self.init.load_state_dict(state["adaptive"])
        step = self.training_step
        for p, momentum in zip(self.net.parameters(), state["momentum"], strict=True):
            if momentum is not None:
                step.optimizer.state[p]["momentum_buffer"].copy_(momentum)
        for average, value in zip(step.averaged, state["averaged"], strict=True):
            average.copy_(value)
        step.totals.copy_(state["totals"])
        self.history = History.from_state_dict(state["history"])
        self.epoch, self.step = state["epoch"], state["step"]
        self.seconds, self.adapt_seconds = state["seconds"], state["adapt_seconds"]


def _build(run: Run, device: torch.device, dropout: DropoutStream) -> Network:
    plan = network_registry.plan(run.net)
    net = plan.build(run.activation, run.options, seed=run.seed, dropout=dropout)
    for name, parameter in net.named_parameters():
        if name.rpartition(".")[2] in run.fixed:
            parameter.requires_grad_(False)
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    return net.to(device, memory_format=layout)  # type: ignore[call-overload]
