"""The paper's initialisation in Lightning, as a callback."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from torch.optim import Optimizer

from ..adapt import AdaptiveInit
from ..measure import Forward
from ..optim import srelu_parameters
from .groups import split


class AdaptiveInitCallback(pl.Callback):
    """Trains with SReLU frozen, sets ``t_r`` from the training data at an epoch, then lets go.

    It takes the SReLU parameters out of the weight decay of the optimizer, whatever
    ``configure_optimizers`` returned. The phase is in the checkpoints: a resumed run goes on where
    it was.

    Args:
        epoch: The number of frozen epochs; `torch_srelu.AdaptiveInit.adapt` comes after them.
        quantile: As in `torch_srelu.AdaptiveInit`.
        scope: As in `torch_srelu.AdaptiveInit`.
        forward: ``forward(module, batch)`` runs the network on a batch of the training data;
            needed where ``module(batch[0])``, or ``module(**batch)`` of a dict, does not.

    Attributes:
        init: The `torch_srelu.AdaptiveInit` of the running fit; its ``summary()`` tells what was
            set.

    Example:
        >>> from lightning.pytorch import Trainer
        >>> from torch_srelu.integrations.lightning import AdaptiveInitCallback
        >>> trainer = Trainer(callbacks=AdaptiveInitCallback(epoch=5), logger=False)
    """

    def __init__(
        self,
        epoch: int,
        *,
        quantile: float = 0.9,
        scope: str = "channel",
        forward: Forward | None = None,
    ) -> None:
        if epoch < 0:
            raise ValueError(f"epoch must be the number of frozen epochs, 0 or more, got {epoch}")
        self.epoch, self.quantile, self.scope, self.forward = epoch, quantile, scope, forward
        self.init: AdaptiveInit | None = None
        self._loaded: dict[str, Any] | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        optimizer = _optimizer(trainer, pl_module)
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        split(pl_module, optimizer, [s for s in schedulers if s.optimizer is optimizer])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        optimizer = _optimizer(trainer, pl_module)
        self.init = AdaptiveInit(pl_module, optimizer, self.quantile, self.scope)
        if self._loaded:
            self.init.load_state_dict(self._loaded)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert self.init is not None, "training has started"
        if not self.init.adapted and trainer.current_epoch >= self.epoch:
            with trainer.precision_plugin.forward_context():
                self.init.adapt(trainer.train_dataloader, self.forward)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        return self.init.state_dict() if self.init else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict  # the optimizer comes later


def _optimizer(trainer: pl.Trainer, pl_module: pl.LightningModule) -> Optimizer:
    """The optimizer that holds the SReLU parameters."""
    ours = set(srelu_parameters(pl_module).values())
    holders = [
        optimizer
        for optimizer in trainer.optimizers
        if any(p in ours for group in optimizer.param_groups for p in group["params"])
    ]
    if len(holders) > 1:
        raise ValueError(f"{len(holders)} optimizers hold SReLU parameters: give them all to one")
    return (holders or trainer.optimizers)[0]  # none: AdaptiveInit says what is wrong
