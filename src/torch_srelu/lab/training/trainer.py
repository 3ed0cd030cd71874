"""The state of a training: network, optimizer, data, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_srelu import AdaptiveInit

from ..config.run import Run, learning_rate
from ..data.datasets import dataset
from ..models import network_registry
from ..models.activation_registry import activation
from ..records.history import History, Metrics
from ..records.run_status import DIVERGED, chance_loss, status_after
from ..runtime.distributed import ProcessGroup
from ..runtime.seeds import DropoutStream
from .evaluation import IMAGES, evaluate, layer_inputs, layer_parameters, layer_weights, top_errors
from .pipeline import open_data_pipeline
from .step import TrainingStep, copy_all, forward, make_optimizer


class Clock:
    """Seconds since it was made, and how many of them each kind of work took.

    Attributes:
        startup: What precedes the first step, and captures.
        epoch: The steps of the current epoch.
        adapt: The adaptive initialisation.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.startup = self.epoch = self.adapt = 0.0

    @property
    def now(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._began

    @contextmanager
    def measure(self, work: str) -> Iterator[None]:
        """Adds the time within to ``work``, the name of an attribute."""
        began = self.now
        yield
        setattr(self, work, getattr(self, work) + self.now - began)


class Trainer:
    """Network, optimizer and data of a run, and how far its training is.

    `torch_srelu.lab.training.loop.fit` calls its methods in the right order.

    Args:
        run: The run's configuration.
        data_root: A folder to search for the data first.
        device: Where to train.
        group: The processes that train together.
        capture: Whether steps are captured as a CUDA graph.
        compiled: Whether the network's part of a step is compiled.

    Attributes:
        epoch: Epochs done.
        step: Steps done in the current epoch.
        steps: Steps of an epoch.
        history: What was measured, epoch by epoch.
        clock: The time since it was made, and what it was spent on.
    """

    def __init__(
        self,
        run: Run,
        data_root: Path | str | None,
        device: torch.device,
        group: ProcessGroup,
        capture: bool,
        compiled: bool = False,
    ) -> None:
        self.clock, self.run, self.device, self.group = Clock(), run, device, group
        self.epoch, self.step, self.history = 0, 0, History()
        self.source = open_data_pipeline(run, data_root, device, group)
        self.batches = self.source.batches
        self.steps = self.batches.steps
        dropout = DropoutStream(run.seed, device, group.rank, group.world)
        self.spec = network_registry.network_spec(run.net)
        net = self.spec.build(run.activation, run.options, seed=run.seed, dropout=dropout)
        for name, parameter in net.named_parameters():
            if name.rpartition(".")[2] in run.fixed:
                parameter.requires_grad_(False)
        layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        self.net = net.to(device, memory_format=layout)  # type: ignore[call-overload]
        self.optimizer = make_optimizer(self.net, run)
        self.init = None
        if activation(run.activation).adapts:
            self.init = AdaptiveInit(self.net, self.optimizer, run.quantile, run.scope)
        self.training_step = TrainingStep(
            self.net, self.optimizer, self.batches, dropout, run, group, compiled, capture
        )

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replaces initial values of parameters.

        Args:
            weights: From a network of the same plan, by name. What that network does not have, such
                as the parameters of another activation, stays as it was built.
        """
        own = self.net.state_dict()
        self.net.load_state_dict(own | {name: v for name, v in weights.items() if name in own})
        if self.run.ema:
            copy_all(self.training_step.averaged, self.net.parameters())

    @property
    def phase(self) -> str:
        """ "frozen", "thawed", or "plain" where the activation is not adaptive."""
        if self.init is None:
            return "plain"
        return "thawed" if self.init.adapted else "frozen"

    @property
    def finite(self) -> bool:
        """Whether every parameter is finite."""
        return all(bool(p.isfinite().all()) for p in self.net.parameters())

    @property
    def status(self) -> str | None:
        """How the run has ended; None if it goes on."""
        if not self.finite:  # the loss of the last step was that of the weights before it
            return DIVERGED
        guessing = chance_loss(dataset(self.run.dataset).classes)
        return status_after(self.history.metrics, self.run.epochs, guessing, self.spec.dead_after)

    def adapt(self) -> None:
        """Ends the freeze: sets t_r from this process's part of the training data."""
        assert self.init is not None
        data, run = self.source.local_images(), self.run
        self.init.adapt(data, forward=lambda _, images: forward(self.net.outputs, images, run))
        self.training_step.reset_graph()

    def begin_epoch(self) -> None:
        """Prepares network and data for the current epoch, or for the rest of it."""
        share = self.epoch / self.run.epochs
        if self.net.begin(share):
            self.training_step.reset_graph()
        if self.step == 0:
            self.net.refine(share)
        self.training_step.begin_epoch(self.epoch, self.step)

    def train_step(self) -> None:
        """Takes one step; the device may still be computing it afterwards."""
        position, total = self.epoch * self.steps + self.step, self.run.epochs * self.steps
        self.training_step(position, learning_rate(self.run, position, total))
        self.step += 1

    def end_epoch(self) -> None:
        """Measures what the epoch changed, and adds it to the history."""
        totals = self.training_step.totals.clone()
        self.group.sum(totals[:2])  # the gradient's norm is the same in every process
        loss, wrong, norm = totals.tolist()
        images, held = self.steps * self.run.batch, self.source.validation()
        metrics = Metrics(
            epoch=self.epoch + 1,
            lr=self.training_step.rate,
            train_loss=loss / images,
            train_error=wrong / images,
            grad_norm=norm / self.steps,
            seconds=round(self.clock.epoch, 6),
            val_error=None if held is None else evaluate(self.net, held, self.run).error,
            phase=self.phase,
        )
        inputs = layer_inputs(self.net, self.source.first(IMAGES), self.run)
        parameters, weights = layer_parameters(self.net), layer_weights(self.net)
        self.history.add(metrics, parameters, *inputs, weights)
        self.epoch, self.step, self.clock.epoch = self.epoch + 1, 0, 0.0

    def synchronize(self) -> None:
        """Waits until the device has computed all steps."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def test(self) -> tuple[dict[str, float], Tensor, Tensor]:
        """Opens the test data: errors and losses, predicted and true classes."""
        data = self.source.test()
        found = evaluate(self.net, data, self.run)
        result = {"test_error": found.error, "test_loss": found.loss}
        if dataset(self.run.dataset).kind == "photographs":
            result["test_top5_error"] = top_errors(found.logits, found.labels)[5]
        if self.run.ema:
            own = [p.detach().clone() for p in self.net.parameters()]
            copy_all(self.net.parameters(), self.training_step.averaged)
            averaged = evaluate(self.net, data, self.run)
            copy_all(self.net.parameters(), own)
            result |= {"ema_test_error": averaged.error, "ema_test_loss": averaged.loss}
        if self.source.skipped():
            result["skipped_images"] = self.source.skipped()
        return result, found.predictions, found.labels

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values from which `load_state_dict` resumes, bit for bit."""
        state = self.optimizer.state
        return {
            "run": self.run.to_dict(),
            "epoch": self.epoch,
            "step": self.step,
            "seconds": self.clock.epoch,
            "adapt_seconds": self.clock.adapt,
            "totals": self.training_step.totals,
            "net": self.net.state_dict(),
            "momentum": [state[p].get("momentum_buffer") for p in self.net.parameters()],
            "averaged": self.training_step.averaged,
            "adaptive": None if self.init is None else self.init.state_dict(),
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes from what `state_dict` gave."""
        if Run.from_dict(state["run"]) != self.run:  # an older one lacks the fields added since
            raise ValueError("the checkpoint belongs to another run: remove it to train this one")
        self.net.load_state_dict(state["net"])
        if self.init is not None:
            self.init.load_state_dict(state["adaptive"])
        for p, momentum in zip(self.net.parameters(), state["momentum"], strict=True):
            if momentum is not None:
                self.optimizer.state[p]["momentum_buffer"].copy_(momentum)
        copy_all(self.training_step.averaged, state["averaged"])
        self.training_step.totals.copy_(state["totals"])
        self.history = History.from_state_dict(state["history"])
        self.epoch, self.step = state["epoch"], state["step"]
        self.clock.epoch, self.clock.adapt = state["seconds"], state["adapt_seconds"]
