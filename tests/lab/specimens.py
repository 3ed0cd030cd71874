"""Records made to measure: written by the laboratory's own writers, with the outcome that a test
wants to see counted, averaged or shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torch_srelu.lab.config.run import Run
from torch_srelu.lab.records import run_record
from torch_srelu.lab.records.history import PROBABILITIES, History, Metrics

IMAGES = 200
LAYERS = {"conv1": 5, "cccp1": 3}
ENVIRONMENT = {"hardware": "a machine", "versions": {"torch": "2.11"}}
PROTOCOL: dict[str, Any] = {"dataset": "digits", "net": "nin-digits", "batch": 64, "lr": 0.1}


def specimen(
    root: Path,
    activation: str,
    seed: int,
    wrong: Sequence[int] = (),
    *,
    status: str | None = "finished",
    epochs: int = 4,
    layers: dict[str, int] = LAYERS,
    environment: dict[str, Any] = ENVIRONMENT,
    **fields: Any,
) -> run_record.Record:
    """A run that misclassified the images ``wrong`` of 200; with no status it is unfinished."""
    freeze = 1 if activation == "srelu" else 0
    run = Run(
        **{**PROTOCOL, "activation": activation, "seed": seed, "epochs": epochs, "freeze": freeze}
        | fields
    )
    return record_of(root, run, wrong, status=status, layers=layers, environment=environment)


def record_of(
    root: Path,
    run: Run,
    wrong: Sequence[int] = (),
    *,
    status: str | None = "finished",
    layers: dict[str, int] = LAYERS,
    environment: dict[str, Any] = ENVIRONMENT,
    kept: int | None = None,
) -> run_record.Record:
    """The record of any run, with the outcome that is wanted; of ``kept`` epochs, or of all."""
    record = run_record.create(root, run, environment)
    history = _history(run, layers, status, kept or run.epochs)
    run_record.write_history(record.folder, history)
    labels = torch.arange(IMAGES) % 10
    predictions = labels.clone()
    predictions[list(wrong)] += 1
    tested = status in ("finished", "diverged")  # as the laboratory does: not the dead
    if tested:
        run_record.write_predictions(record.folder, predictions, labels)
    if status is not None:
        error = len(wrong) / IMAGES if tested else None
        result: dict[str, Any] = {
            "status": status,
            "test_error": error,
            "test_loss": 4 * error if error is not None else None,
            "train_loss": history.metrics[-1].train_loss if status == "finished" else None,
            "train_error": history.metrics[-1].train_error if status == "finished" else None,
            "val_error": error if run.validation else None,
            "epochs": run.epochs,
            "seconds": 2.0 * run.seed,
            "adapt_seconds": 0.5 if run.freeze else 0.0,
        }
        if run.ema:
            result["ema_test_error"] = error and error / 2
        run_record.write_run(record.folder, run, environment, result)
    return run_record.load(record.folder)


def _history(run: Run, layers: dict[str, int], status: str | None, epochs: int) -> History:
    stream = torch.Generator().manual_seed(run.seed)
    history = History()
    for epoch in range(1, epochs + 1):
        inputs = {name: torch.randn(500, generator=stream) * epoch for name in layers}
        parameters = {
            name: torch.randn(4, channels, generator=stream)
            for name, channels in layers.items()
            if run.activation.startswith("srelu")
        }
        grid = torch.tensor(PROBABILITIES)
        loss = 2.0 / epoch + 0.1 * run.seed
        if status == "diverged" and epoch == epochs:
            loss = float("nan")
            inputs = {name: x * loss for name, x in inputs.items()}
            parameters = {name: p * loss for name, p in parameters.items()}
        history.add(
            Metrics(epoch, run.lr, loss, min(1.0, loss / 4), 1.0, 0.5, None, "plain"),
            parameters,
            {name: torch.quantile(x, grid) for name, x in inputs.items()},
            {name: x.abs().mean() for name, x in inputs.items()},
            {name: x.std() for name, x in inputs.items()},
        )
    return history
