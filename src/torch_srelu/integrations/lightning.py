"""Callback for Lightning: freezes SReLU, then adapts it."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import lightning.pytorch as pl
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from .._data_parallel import unwrap
from ..adaptive.adaptive_init import AdaptiveInit
from ..adaptive.input_measurement import run_batch, training_modes
from ..adaptive.loader_replay import CompositeLoader
from ..optim import srelu_parameters
from .callback_schedule import AdaptiveInitSchedule
from .weight_decay import add_undecayed_groups


class AdaptiveInitCallback(AdaptiveInitSchedule, pl.Callback):
    """Trains with SReLU frozen, sets ``t_r`` from the training data at an epoch, then unfreezes.

    It takes the SReLU parameters out of the weight decay of the optimizer, whatever
    ``configure_optimizers`` returned. The phase is in the checkpoints: a resumed run continues in
    it, and so does a second fit of the same module with the same callback.

    `torch_srelu.AdaptiveInit.adapt` reads the batches that ``training_step`` would get in that
    epoch: through the precision plugin and the batch transfer hooks, of all loaders, and as many as
    the Trainer takes.

    Its arguments, and ``init``, are those of `AdaptiveInitSchedule`.

    Example:
        >>> from lightning.pytorch import Trainer
        >>> from torch_srelu.integrations.lightning import AdaptiveInitCallback
        >>> trainer = Trainer(callbacks=AdaptiveInitCallback(epoch=5), logger=False)
    """

    _loaded: dict[str, Any] | None = None  # the state in a checkpoint, until training starts

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        optimizer = _optimizer(trainer, pl_module)
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        own = [s for s in schedulers if s.optimizer is optimizer]
        add_undecayed_groups(pl_module, optimizer, own)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        state, self._loaded = self._loaded, None
        if not state and self.init is not None and unwrap(self.init.model) is pl_module:
            state = self.init.state_dict()  # of the previous fit
        if self.forward is None and not (state and state["result"]):
            _check_single_loader(trainer)
        optimizer = _optimizer(trainer, pl_module)
        # With the DDP wrapper, which has the process group and says whether buffers are broadcast.
        model = trainer.model if isinstance(trainer.model, DistributedDataParallel) else pl_module
        self.init = AdaptiveInit(model, optimizer, self.quantile, self.scope)
        if state:
            self.init.load_state_dict(state)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._adapt_when_due(trainer)

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        # A run that is resumed at the end of an epoch begins the next one without calling the hook.
        self._adapt_when_due(trainer)

    def _adapt_when_due(self, trainer: pl.Trainer) -> None:
        assert self.init is not None, "training has started"
        if self.init.adapted or trainer.current_epoch < self.epoch:
            return
        run = self.forward or run_batch

        def forward(network: nn.Module, batch: Any) -> Any:
            with trainer.precision_plugin.forward_context():
                return run(network, batch)

        self.init.adapt(_TrainingEpoch(trainer), forward)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not getattr(trainer, "fast_dev_run", False):  # a test of a few steps
            self.warn_if_frozen()

    def state_dict(self) -> dict[str, Any]:
        return self.init.state_dict() if self.init else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict  # the optimizer comes later


def _optimizer(trainer: pl.Trainer, pl_module: pl.LightningModule) -> Optimizer:
    """The optimizer that holds the SReLU parameters."""
    srelu = set(srelu_parameters(pl_module).values())
    holders = [
        optimizer
        for optimizer in trainer.optimizers
        if not srelu.isdisjoint(p for group in optimizer.param_groups for p in group["params"])
    ]
    if len(holders) > 1:
        raise ValueError(f"{len(holders)} optimizers hold SReLU parameters: give them all to one")
    return (holders or trainer.optimizers)[0]  # none: AdaptiveInit says what is wrong


def _check_single_loader(trainer: pl.Trainer) -> None:
    loaders = trainer.train_dataloader
    if isinstance(loaders, (Mapping, tuple, list)):
        kind = type(loaders).__name__
        raise ValueError(
            f"the training data is a {kind} of loaders, so each batch is a {kind} of their "
            "batches: pass a function that runs the network on it, as in AdaptiveInitCallback(..., "
            "forward=lambda module, batch: ...)"
        )


class _TrainingEpoch(CompositeLoader):
    """The batches of an epoch as ``training_step`` gets them, however often it is read."""

    def __init__(self, trainer: pl.Trainer) -> None:
        # The public train_dataloader has no mode.
        self._trainer, self._loader = trainer, _private(trainer.fit_loop, "_combined_loader")
        self._modes = {m: m.training for m in trainer.lightning_module.modules()}
        self.parts = self._loader.flattened

    def __len__(self) -> int:
        return self._trainer.num_training_batches  # type: ignore[return-value]  # inf: TypeError

    def __iter__(self) -> Iterator[Any]:
        count = self._trainer.num_training_batches
        # A copy, for the loader is its own iterator, and the Trainer is using it.
        stop = None if math.isinf(count) else int(count)
        for batch, _, _ in itertools.islice(copy.copy(self._loader), stop):
            with training_modes(self._modes):  # moved to the device as the Trainer does
                batch = self._trainer.precision_plugin.convert_input(batch)
                # The hook of the module or of the data module.
                batch = _private(self._trainer.lightning_module, "_on_before_batch_transfer")(batch)
                batch = self._trainer.strategy.batch_to_device(batch)
            if batch is not None:  # the Trainer skips None
                yield batch


def _private(owner: Any, name: str) -> Any:
    """A private attribute of Lightning that has no public counterpart."""
    if (found := getattr(owner, name, None)) is None:
        raise RuntimeError(
            f"this version of Lightning has no {type(owner).__name__}.{name}, which adapt needs to "
            "read the batches of training: install a version that torch-srelu supports, or call "
            "torch_srelu.AdaptiveInit(...).adapt(loader) yourself"
        )
    return found
