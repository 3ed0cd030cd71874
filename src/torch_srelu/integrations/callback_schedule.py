"""`AdaptiveInitSchedule`, the base class of the callbacks for Lightning and transformers."""

from __future__ import annotations

import warnings

from ..adaptive.adaptive_init import AdaptiveInit
from ..adaptive.input_measurement import Forward


class AdaptiveInitSchedule:
    """When to call `torch_srelu.AdaptiveInit.adapt`: after a number of frozen epochs.

    Attributes:
        init: The `torch_srelu.AdaptiveInit` of the current training; its ``summary()`` shows what
            was set. None before training, and in one that was resumed after `adapt`.
    """

    def __init__(
        self,
        epoch: int,
        *,
        quantile: float = 0.9,
        scope: str = "channel",
        forward: Forward | None = None,
    ) -> None:
        """
        Args:
            epoch: The number of frozen epochs; `torch_srelu.AdaptiveInit.adapt` comes after them,
                so the training must be longer.
            quantile: As in `torch_srelu.AdaptiveInit`.
            scope: As in `torch_srelu.AdaptiveInit`.
            forward: ``forward(model, batch)`` runs the network on a batch of the training data;
                needed where ``model(**batch)`` of a dict, or ``model(batch[0])`` of another batch,
                does not, and for a batch of the batches of several loaders.
        """
        if epoch < 0:
            raise ValueError(f"epoch must be the number of frozen epochs, 0 or more, got {epoch}")
        self.epoch, self.quantile, self.scope, self.forward = epoch, quantile, scope, forward
        self.init: AdaptiveInit | None = None

    def warn_if_frozen(self) -> None:
        """Warns at the end of a training that was too short for `adapt`."""
        if self.init is not None and not self.init.adapted:
            warnings.warn(
                "the training has ended with SReLU still frozen: t_r is set when epoch "
                f"{self.epoch} begins, counted from 0, and it never began. Train for more epochs, "
                "from a checkpoint if there is one, or make epoch smaller",
                stacklevel=2,
            )
