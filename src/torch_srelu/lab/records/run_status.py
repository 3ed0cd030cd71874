"""How a run can end, and the one rule that decides it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..util.patience import DEAD_AFTER, PATIENCE

if TYPE_CHECKING:
    from .history import Metrics

FINISHED, DEAD, DIVERGED, UNFINISHED = "finished", "dead", "diverged", "unfinished"

CHANCE_MARGIN = 1e-3  # nats below guessing; a dead network stays closer, a slow one does not


def chance(classes: int) -> float:
    """The loss above which a network is no better than guessing among ``classes``.

    Example:
        >>> round(chance(10), 3)
        2.302
    """
    return math.log(classes) - CHANCE_MARGIN


def judge(
    metrics: Sequence[Metrics], epochs: int, chance: float, dead_after: int = DEAD_AFTER
) -> str | None:
    """The status of a run after these epochs; None if it goes on.

    "dead": in its first ``dead_after`` epochs the loss never was below guessing. "diverged": the
    loss is not finite, or it was better than guessing once and is not at the end, or not for
    `PATIENCE` epochs on end. A run that ends before its start can be judged is finished.

    Args:
        metrics: The epochs so far.
        epochs: How many there will be.
        chance: A loss above this is no better than guessing.
        dead_after: After how many epochs a start is judged.
    """
    if not metrics:
        return None
    loss = metrics[-1].train_loss
    if not math.isfinite(loss):
        return DIVERGED
    guessed = [m.train_loss > chance for m in metrics]
    learnt = not all(guessed)
    if len(metrics) >= dead_after and not learnt:
        return DEAD
    if learnt and all(guessed[-PATIENCE:]):
        return DIVERGED
    if len(metrics) < epochs:
        return None
    return DIVERGED if learnt and guessed[-1] else FINISHED
