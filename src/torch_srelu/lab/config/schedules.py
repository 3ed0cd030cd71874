"""Schedules of the learning rate: constant, multistep, cosine, poly."""

from __future__ import annotations

import math

from .run import Run


def learning_rate(run: Run, step: int, steps: int) -> float:
    """The learning rate of training step ``step`` out of ``steps``.

    constant: lr. multistep: lr * gamma^k after k milestones.
    cosine: lr * (1 + cos(pi * done)) / 2. poly: lr * (1 - done)^power.

    Example:
        >>> run = Run(dataset="digits", net="nin-digits", activation="relu", seed=0, epochs=1,
        ...           batch=64, lr=0.1, schedule="multistep", milestones=(0.5, 0.75))
        >>> [round(learning_rate(run, step, 100), 4) for step in (0, 49, 50, 99)]
        [0.1, 0.1, 0.01, 0.001]
    """
    done = step / steps
    if run.schedule == "multistep":
        return run.lr * run.gamma ** sum(step >= round(m * steps) for m in run.milestones)
    if run.schedule == "cosine":
        return run.lr * (1 + math.cos(math.pi * done)) / 2
    if run.schedule == "poly":
        return run.lr * (1 - done) ** run.power
    return run.lr
