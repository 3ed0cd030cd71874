"""The status of a run, and the rule that decides when and how it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..util.patience import DEAD_AFTER, PATIENCE
from .history import Metrics

FINISHED, DEAD, DIVERGED, UNFINISHED = "finished", "dead", "diverged", "unfinished"

CHANCE_MARGIN = 1e-3  # in nats; a dead network stays closer to guessing, a slow one does not


def chance_loss(classes: int) -> float:
    """The loss above which a network is no better than guessing among ``classes``.

    Example:
        >>> round(chance_loss(10), 3)
        2.302
    """
    return math.log(classes) - CHANCE_MARGIN


def status_after(
    metrics: Sequence[Metrics], epochs: int, chance_loss: float, dead_after: int = DEAD_AFTER
) -> str | None:
    """The status of a run after these epochs; None if it goes on.

    "dead": in its first ``dead_after`` epochs the loss was never better than guessing. "diverged":
    the loss is not finite, or it was better than guessing once and is not at the end, or not for
    `PATIENCE` epochs in a row. A run shorter than ``dead_after`` is finished.

    Args:
        metrics: The epochs so far.
        epochs: How many there will be.
        chance_loss: A loss above this is no better than guessing.
        dead_after: After how many epochs of guessing from the start a run is dead.
    """
    if not metrics:
        return None
    loss = metrics[-1].train_loss
    if not math.isfinite(loss):
        return DIVERGED
    guessed = [m.train_loss > chance_loss for m in metrics]
    ended = len(metrics) >= epochs
    if all(guessed):
        return DEAD if len(metrics) >= dead_after else FINISHED if ended else None
    if all(guessed[-PATIENCE:]) or (ended and guessed[-1]):
        return DIVERGED
    return FINISHED if ended else None
